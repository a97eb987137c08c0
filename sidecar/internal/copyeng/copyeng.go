// Package copyeng copies memory outside of the engine's turn: by the processor in the turn
// (cpu), by threads (helper), and by devices. Paper 003 calls this copy offload: a channel
// takes copies, executes them in order, and reports their ends when it is polled.
package copyeng

// Channel executes copies in the order of their submission, and reports their ends in that
// order. All methods are called on the engine's goroutine. From Submit until its end is
// reported the caller keeps dst and src mapped, does not read dst, and writes neither.
type Channel interface {
	// Name returns the kind of the channel, as metrics and reports print it.
	Name() string
	// Submit starts a copy of len(src) bytes to dst, which has at least that length. It
	// returns false, and starts nothing, if as many copies are pending as the channel
	// bounds.
	Submit(dst, src []byte, token uint64) bool
	// Poll calls done for each copy that has ended since the last Poll, the oldest first,
	// and returns their number. If err is not nil, any part of dst may have been written:
	// the caller copies again by other means. done may call Submit.
	Poll(done func(token uint64, err error)) int
	// Pending returns the number of copies whose end is not reported.
	Pending() int
	// Close waits until no copy accesses memory any more. It reports no ends.
	Close() error
}

// Work does something with the bytes of src to those of dst. It may run on another thread.
type Work func(dst, src []byte) error

// Worker is a Channel that does other work than copies, too.
type Worker interface {
	Channel
	// Work is as Submit, for work.
	Work(do Work, dst, src []byte, token uint64) bool
}
