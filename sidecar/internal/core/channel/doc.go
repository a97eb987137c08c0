// Package channel is to carry the reliable, credited, resumable stream of frames to each peer.
// It is a room of the core: owned by the turn goroutine, without clock or I/O.
//
// What it owns so far are the parts of such a stream that call nothing: the frames from their
// emission to their acknowledgement (Outbox), what has come in order and is to be acknowledged
// (Arrivals), how much each side lets the other send (Credit), what a peer makes this sidecar
// keep (Account), whether it has to tell of what it writes into its ring (Notices), and the
// times at which peers are looked at (Timers). A frame is queued, posted and acknowledged. On
// the way it may have come, as its link tells, and after a broken connection all those that
// have not come are posted again. Each frame has a Release, which its user chooses, and
// carries out when the room hands it back: when the frame has come if that is enough, else
// when it is acknowledged. Connections, and when frames are posted and acknowledged, are
// core's as long as the rest has not moved. Below, core/ranks names the sessions, and has the
// allowance of all peers.
package channel
