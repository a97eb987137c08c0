package channel

// An acknowledgement is sent in a frame of its own when so many frames or bytes have arrived
// since the last one.
const (
	ackFrames = 64
	ackBytes  = 512 << 10
)

// Arrivals counts the frames and bytes that have arrived from a peer, and those that have to
// be acknowledged.
type Arrivals struct {
	last  uint64 // frame received in order
	told  uint64 // number of the last frame that is acknowledged
	bytes uint64 // payload bytes of the frames after told
	at    int64  // when an acknowledgement is due; 0: none is owed
}

// Last returns the number of the last frame that has arrived in order.
func (a *Arrivals) Last() uint64 { return a.last }

// Arrived notes the next frame.
func (a *Arrivals) Arrived(seq uint64) { a.last = seq }

// Untold reports whether frames have arrived that are not acknowledged.
func (a *Arrivals) Untold() bool { return a.told != a.last }

// Owe makes an acknowledgement due after a delay, unless one is due before, or at once.
func (a *Arrivals) Owe(now, delay int64, bytes uint32, atOnce bool) {
	a.bytes += uint64(bytes)
	if atOnce {
		a.at = now
	} else if a.at == 0 {
		a.at = now + delay
	}
}

// Hurry makes an acknowledgement due now.
func (a *Arrivals) Hurry(now int64) { a.at = now }

// At returns when an acknowledgement is due, or 0 if none is.
func (a *Arrivals) At() int64 { return a.at }

// Due reports whether an acknowledgement has to be sent now, in a frame of its own if no other
// frame is sent.
func (a *Arrivals) Due(now int64) bool {
	return a.last-a.told >= ackFrames || a.bytes >= ackBytes || a.at != 0 && now >= a.at
}

// Told notes that a frame has acknowledged all frames.
func (a *Arrivals) Told() { a.told, a.bytes, a.at = a.last, 0, 0 }
