// Package channel carries the reliable, credited, resumable stream of frames to each peer. It
// is a room of the core: the turn goroutine owns it, and it has no clock and no I/O.
//
// Its user emits a frame (Room.Emit) and fills it in; the frame waits in the peer's Outbox.
// Flush posts it to the link, or writes it into the peer's ring (rings.go). A frame is queued,
// posted, maybe confirmed (its link reports that it has come) and acknowledged; then the room
// hands its Release back to the user. When a connection breaks, all frames that are not
// confirmed are posted again on the next one. A peer is Idle until it is needed, Connecting,
// Greeting until it has said what it received, Ready, and Dead when it was silent for too long;
// a dead peer that connects again is Rejected until it knows. Frames that arrive are handed to
// the user in order, once each: those with their payload in hand at once (Handler.Frame), those
// whose payload is placed by the link first with the question where it goes
// (Handler.Destination) and then when it is there (Handler.Placed).
//
//	user         room                  link            peer
//	Emit ──────▶ Outbox
//	             Flush ──────────────▶ Post ─────────▶ Deliver: Handler.Frame
//	             Delivered ◀────────── confirmed
//	             Deliver ◀──────────────────────────── its next frame: acknowledgement, credit
//	Released ◀── Outbox
//
// Credit bounds the eager bytes that each side lets the other send, Account what a peer makes
// this sidecar keep, Arrivals says when an acknowledgement is due, and Timers when a peer has to
// be looked at. The room calls its user by the interface Handler alone, which decides what the
// end of a connection or a peer means for the job. Below it, core/ranks names the sessions, and
// has the allowance that all peers share.
package channel
