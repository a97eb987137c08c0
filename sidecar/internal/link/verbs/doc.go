// Package verbs is the link over RDMA devices (InfiniBand, RoCE), by libibverbs. It has
// one reliable connected queue pair for each peer, in addition to the socket on which the
// peer has authenticated. The sidecar opens one Link, package peers connects its peers,
// and the engine polls it.
//
// A pair of sidecars exchanges:
//
//	frames          SEND, a stream of frames cut into messages of slotBytes
//	                (pack.go, unpack.go), into receives posted ahead (credit.go)
//	Read, Write     RDMA READ and WRITE in pieces (operations.go)
//	notifications   WRITE WITH IMMEDIATE, or a SEND of its own when the notification
//	                has more than 30 bits
//	sign of life    the socket: the connection ends when the socket ends
//
// A queue pair that fails ends its connection: both sides detect it, by their own
// completions or by the end of the socket, and the core resumes on the next connection by
// its sequence numbers.
//
// # Protection
//
// Key.Key is the rkey of a registration of exactly the range, and bit 32, so that it is
// never 0. An rkey has 32 bits, of which devices draw few at random, if any.
// Registrations therefore begin at a random address under their key (Key.Addr), 46 bits
// of it: a peer that knows neither key nor address reaches no memory, and a wrong guess
// costs it the connection. Only queue pairs of the same protection domain can try at all;
// the domain has those of this job's sidecars, each connected after authentication, with
// random initial packet numbers.
//
// # Ends of registrations
//
// When Deregister returns, the device has dropped the key. It then refuses a peer's
// operation in flight, which ends the connection (InfiniBand Architecture Specification,
// vol. 1, 9.9.2): ErrKey for the operation that was refused, ErrBroken for the others.
//
// The files without a build tag contain no C. libibverbs is used by files with the tag
// rdma, and is loaded when the link opens, so that the same program runs where the
// library is not installed.
package verbs
