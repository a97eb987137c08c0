// Package node is the link between sidecars of one machine, by memory that they share:
// no frame goes through a socket, and a large message is one copy, from the sender's
// memory into the receiver's, made by the receiver's sidecar.
//
// What goes where, of each pair of sidecars:
//
//	frames          a ring of bytes in each direction (ring.go), in one sealed segment
//	Read            a copy out of the peer's regions, which it has passed as descriptors
//	                that are open for reading (shares.go)
//	keys            a board in the memory of who registers, which only this side writes
//	                (board.go)
//	wake-ups        a message of a local socket, when the peer says that it sleeps;
//	                by the same socket the descriptors of regions come (words.go)
//	sign of life    the proven socket of package peers, and the local one: the end of
//	                either is the connection's end
//
// There is no Write: memory of a rank that another sidecar could write to could not be
// taken back from it while it writes. A read of memory that is no longer registered
// harms nobody, and what it brought is not handed over (link.Remote, Lifetimes).
//
// How two sidecars come by all this (meet.go): each offers the name of a local socket of
// its own and a secret, inside the control connection by which they prove who they are.
// They can meet if they are in one network namespace of one machine, which the offer
// names, too. Peers elsewhere are reached by the stream, Config.Stream.
package node
