package channel

// Acknowledgements are sent alone when so much has arrived since the last one.
const (
	ackFrames = 64
	ackBytes  = 512 << 10
)

// Arrivals is what has come from a peer, and what of that is to be acknowledged.
type Arrivals struct {
	last  uint64 // frame received in order
	told  uint64 // the last that is acknowledged
	bytes uint64 // of payloads since then
	at    int64  // when an acknowledgement is due; 0: none is owed
}

// Last is the number of the last frame that has come in order.
func (a *Arrivals) Last() uint64 { return a.last }

// Arrived notes the next one.
func (a *Arrivals) Arrived(seq uint64) { a.last = seq }

// Untold reports that frames have come that are not acknowledged.
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

// Hurry makes one due now.
func (a *Arrivals) Hurry(now int64) { a.at = now }

// At is when one is due; 0: none is owed.
func (a *Arrivals) At() int64 { return a.at }

// Due reports that one is to be sent, alone if no frame carries it.
func (a *Arrivals) Due(now int64) bool {
	return a.last-a.told >= ackFrames || a.bytes >= ackBytes || a.at != 0 && now >= a.at
}

// Told notes that a frame has acknowledged all.
func (a *Arrivals) Told() { a.told, a.bytes, a.at = a.last, 0, 0 }
