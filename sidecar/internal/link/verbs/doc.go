// Package verbs is the link over RDMA devices (InfiniBand, RoCE) by
// libibverbs: reliable connected queue pairs, one a peer, beside the socket by
// which the peer has proven who it is.
//
// What goes where:
//
//	frames          SEND, a stream of frames cut into messages of slotBytes
//	                (pack.go, unpack.go), into receives posted ahead (credit.go)
//	Read, Write     RDMA READ and WRITE in pieces (operations.go)
//	a notice        WRITE WITH IMMEDIATE, or a SEND of its own when the notice
//	                has more than 32 bits
//	sign of life    the socket: its end is the connection's end
//
// A queue pair that fails ends its connection: both sides hear of it, by their
// own completions or by the end of the socket, and the core resumes on the next
// connection by its sequence numbers.
//
// # Protection
//
// Key.Key is the rkey of a registration of exactly the range, and bit 32, so that
// it is never 0. An rkey has 32 bits, of which devices draw few at random, if any.
// Registrations therefore begin at a random address under their key (Key.Addr),
// 46 bits of it: who knows neither reaches nothing, and whose guess is wrong loses
// the connection. Only queue pairs of the same protection domain can try at all;
// it has those of this job's sidecars, each wired up by a proven connection, with
// numbers drawn at random for its packets.
//
// # Ends of registrations
//
// When Deregister returns the device has forgotten the key. An operation of a
// peer that is under way then is refused by the device, which ends the connection
// (InfiniBand Architecture Specification, vol. 1, 9.9.2): ErrKey for the operation
// that was refused, ErrBroken for the others.
//
// The files without a build tag know no C. libibverbs is in those with the tag
// rdma, and is loaded when the link opens, so that the same program runs where it
// is not installed.
package verbs
