// Package dsamodel is a model of a work queue of a Data Streaming Accelerator, for tests: the
// other end of a SOCK_SEQPACKET pair, whose goroutine carries out descriptors on the memory of
// this process, in any order of a window. A write to the first end submits descriptors, as a write
// to a device file does.
//
// It has its own constants of descriptors and completion records, so that a mistake in package dsa
// is not repeated here, and it notes each descriptor that the specification or the driver would
// not accept, and each pair of descriptors whose order would matter.
//
// What is not as with hardware: a socket takes a whole write or none of it; a full queue is one
// whose socket buffer is full too; closing a socket does not wait, so that the wait of the
// driver's release is Drain; there is no PASID, no translation of addresses and no page request,
// but with Options.Pages a page that is not resident faults.
package dsamodel
