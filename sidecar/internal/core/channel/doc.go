// Package channel carries the reliable, credited, resumable stream of frames to each peer. It
// is a room of the core: the turn goroutine owns it, and it has no clock and no I/O.
//
// Its user emits a frame (Room.Emit) and fills it in; the frame waits in the peer's Outbox.
// Flush posts it to the link, or writes it into the peer's ring (rings.go). A frame is queued,
// posted, and then acknowledged; a link may confirm earlier that the frame has arrived. The first
// of both hands the frame's Release back to the user, if it has one. A transfer (Add) is work of
// many frames: Flush calls Handler.Feed in turn for those of a peer. A frame of this generation to
// a pod in an earlier one stays in the Outbox, behind the wall (Peer.Wall, SetWalled), which Flush does
// not pass.
//
// A peer is Idle while no side needs a connection, before its first frame or after Rest;
// Connecting; Greeting until its first frame has said what it received; Ready; and Dead after a
// silence, a connection that cannot be made again, or a violation of the protocol. A dead peer
// that connects again is Rejected until it has acknowledged that, or time is up. When a
// connection breaks, frames that are neither acknowledged nor confirmed are posted again on the
// next one. Frames that arrive are handed to the user in order, once each. Those with their payload
// in the frame go to Handler.Frame. For Data, Got, Put and Acc, whose payload the link reads into
// memory, the room asks Handler.Destination first and calls Handler.Placed at the end.
//
//	user         room                  link            peer
//	Emit ──────▶ Outbox
//	Feed ◀────── Flush ──────────────▶ Post ─────────▶ Deliver: Handler.Frame
//	Released ◀── Delivered ◀────────── confirmed, or
//	Released ◀── Deliver ◀──────────────────────────── its next frame: acknowledgement, credit
//
// Credit bounds the eager bytes that each side lets the other send, Account counts the memory that
// is kept for a peer, Arrivals decides when an acknowledgement is due, and Timers when a peer is
// visited. The room calls its user by the interface Handler alone, which decides what the end of
// a connection or a peer means for the job. Package ranks names the sessions, and has the
// allowance that all peers share.
package channel
