// Package p2p carries the messages of the ranks of this sidecar, point to point: matching, the
// eager and the rendezvous protocols, staged messages, probes and cancels. It is a room of the
// core: the turn goroutine owns it, and it has no clock and no I/O.
//
// A send is a frame without a state if its message is small and its receiver has granted credit
// for it (send.go); a small synchronous send has both. Other sends are states in the table sends
// until the receiver has all of the message (rendezvous.go). A receive is a state in recvs: posted,
// or offered to its sender before anything is announced (ready.go at the receiver, offers.go at
// the sender), which may be withdrawn; matched; ended. A receive whose message is parked already
// skips the first state. A message that arrives before its receive is parked, with its payload in
// the pool if it is eager, otherwise as announcement (message.go). Messages whose memory the sidecar
// cannot access are staged: their application supplies chunks (staged.go). The room also keeps the
// remote operations that links carry out for it, for rings and for one-sided accesses.
//
//	eager        Send ── Eager ─────────────▶ match, copy, end
//	rendezvous   Send ── RTS ───────────────▶ match
//	                  ◀─ Pull, or a remote read ─┤
//	                  ── Data …, or a remote write ▶ end
//	                  ◀─ Fin, unless a write notified ┤
//	offered      Receive ── Ready ──────────▶ (sender)
//	                     ◀─ a remote write ──┤ end
//
// The owner of a state is a request of an application, which gets a completion, or a collective,
// which gets calls of the interface Collectives. Silent sends, parked messages and states whose
// application has ended have no owner. Package rendezvous decides the steps of a rendezvous.
// Package channel carries the frames (Released and Feed are its calls), and package ranks has
// sessions, tables and the state of the job. The rooms above submit descriptors and messages, hand
// on the frames that concern messages (Eager, Frame, Destination, Placed) and the ends of remote
// operations (RemoteDone), continue registrations that a turn had no budget for (Register), and
// end what waits for a rank or a peer that is gone, in bounded steps (gone.go, ending.go).
package p2p
