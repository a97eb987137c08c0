// Package node is the link between sidecars of one machine, through memory that they
// share: no frame passes through a socket, and a large message is one copy, from the
// sender's memory into the receiver's, made by the receiver's sidecar. The sidecar makes
// one Link, package peers connects its peers, and the engine polls it.
//
// Each pair of sidecars has:
//
//	frames          a ring of bytes in each direction (ring.go), in one sealed segment
//	Read            a copy out of the peer's regions, which the peer passes as descriptors
//	                that are open for reading (shares.go)
//	keys            a board in the memory of the registering side, which only that side
//	                writes (board.go)
//	wake-ups        a message of a local socket, if the peer's flag says that it sleeps, or
//	                that it does not read a ring that was silent (visits.go);
//	                the descriptors of regions pass through the same socket (control.go)
//	sign of life    the proven socket of package peers, and the local one: the connection
//	                ends when either of them ends
//
// There is no Write: if another sidecar could write to memory of a rank, the memory could
// not be reclaimed during a write. A read of memory that is no longer registered does no
// harm, and its data is not handed over (link.Remote, Lifetimes).
//
// The two sidecars meet as follows (meet.go). Each sends an offer, the name of a local
// socket of its own and a secret, inside the control connection on which the sidecars
// authenticate each other. They can meet if they are in one network namespace of one
// machine, which the offer identifies, too. Peers elsewhere are reached by the stream,
// Config.Stream.
package node
