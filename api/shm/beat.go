package shm

// The file of the beat, next to the socket, shows a client that waits for its Welcome whether the
// sidecar runs (§2).
const (
	// BeatBytes is the size of the file: one number, which changes every 5 s.
	BeatBytes = 8
	// BeatPolls is how many seconds in a row, counted one by one, the number is the same until the
	// client gives up: 30 s, and the time between two changes.
	BeatPolls = 35
)
