// Package p2p carries the messages of the ranks of this sidecar, point to point: matching, the
// eager and the rendezvous protocols, staged messages, probes and cancels. It is a room of the
// core: the turn goroutine owns it, and it has no clock and no I/O.
//
// A send is a frame alone when its message is small and its receiver has granted room for it
// (send.go); else it is a state in the table sends until its receiver has all of it
// (rendezvous.go). A receive is a state in recvs: posted, matched, then moved, and it ends with one
// completion. A message that comes before its receive is parked: with its payload in the pool if
// it is eager, else as the announcement alone. A large receive may be offered to its sender before
// anything is announced (ready.go at the receiver, offers.go at the sender). Messages whose memory
// the sidecar cannot see are staged: their application supplies chunks (staged.go).
//
//	eager        Send ── Eager ─────────────▶ match, copy, end
//	rendezvous   Send ── RTS ───────────────▶ match
//	                  ◀─ Pull, or a remote read ─┤
//	                  ── Data …, or a remote write ▶ end
//	                  ◀─ Fin ────────────────────┤
//	offered      Receive ── Ready ──────────▶ (sender)
//	                     ◀─ a remote write ──┤ end
//
// Each state has an owner: a request of an application, or a collective, which hears of its end by
// the interface Collectives. Below, core/channel carries the frames, and core/ranks has sessions,
// tables and what is known of the job. The rooms above submit descriptors and messages, hand on
// the frames that concern messages (Frame, Destination, Placed), and end what waits for a rank or
// a peer that is gone, in bounded steps (gone.go, ending.go).
package p2p
