// Package dsa is a copy engine by a work queue of Intel's Data Streaming Accelerator. It writes
// descriptors to the device file /dev/dsa/wqN.M, which a pod gets from the node's agent. A
// mapping of the queue's portal needs CAP_SYS_RAWIO; write does not.
//
// # A copy
//
// Submit puts a copy into a ring. The processor copies up to 63 bytes at each end, so that the
// device writes whole cache lines; the rest is cut into pieces of at most pieceMax, each one
// descriptor with a completion record of its own. Pages that are not known to be resident are
// made so before. One write carries as many descriptors as wait: at once if the device is idle,
// otherwise at the next Poll, or when a batch is full, because the system call costs more than
// all other parts of a submission.
//
// The device executes descriptors in any order. A copy that overlaps a pending one therefore
// waits for its end, and a copy whose own ranges overlap is done by the processor.
//
// # Faults
//
//	page fault             the pages are made resident, and the rest is submitted again;
//	                       the processor copies it after faultsMax faults without progress
//	other statuses         the processor copies the piece; after errorsMax in a row the
//	                       channel ends
//	full shared queue      descriptors wait; after refusalsMax refusals, with no descriptor
//	                       of this channel in the queue, the processor copies their pieces
//	full dedicated queue   does not occur: a dedicated queue drops what exceeds its size, so
//	                       that no more descriptors are in flight than it has entries
//	write fails            the channel ends
//	no completion          the channel ends after Config.Late, or after suspectAfter if the
//	                       device reports an error
//
// # The end of a channel
//
// A device may write memory as long as it has a descriptor, so a copy in flight must not end
// before. The channel closes the device file, and the driver's release waits until the queue
// has no descriptor of this process (Linux, drivers/dma/idxd/cdev.c: idxd_device_drain_pasid for
// a shared queue, idxd_wq_disable_pasid for a dedicated one). As that can block, another
// goroutine does it. Then the processor copies all that has no completion, and all that is
// submitted later. The engine's goroutine never blocks; while the driver waits, Err wraps
// ErrDraining, and copies in flight stay pending.
//
// Close waits for the same, but at most Config.Drain. If it returns ErrDraining, the device may
// still write: the caller must not use the memory of pending copies again, and should end the
// process. The channel keeps the memory's references and its completion records forever.
//
// # Waiting
//
// A queue that is used by write raises no interrupt for the process, so that nothing wakes an
// engine that sleeps while copies are pending: it has to poll.
//
// The package was tested with package dsamodel and with no device.
package dsa
