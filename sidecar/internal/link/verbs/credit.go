package verbs

// credit counts the receives that a peer has posted for this side, and those that this
// side has posted for the peer. Every message that consumes a receive spends one; every
// message carries the number of receives that its sender has posted since the start,
// modulo 2^31 (the upper bit of the immediate marks a notification).
//
// A notification that is a write's own immediate has two bits for it: the number in steps
// of half a queue, modulo 4. It cannot be three steps behind, since there are two.
//
// A message without content only announces credit. One is sent when half of the receives
// are not announced, and reserve receives are kept for it: until the next one is due the
// peer must have sent more than it could have without this one, so at most one of them is
// unaccounted for. Messages that were notifications are usually answered by
// notifications, which announce the credit: so the announcement waits until the peer has
// few receives left.
type credit struct {
	granted   uint32 // receives granted by the peer, since the start
	spent     uint32 // messages sent, since the start
	posted    uint32 // receives posted for the peer, since the start
	announced uint32 // value of posted that was last announced
	received  uint32 // messages from the peer, since the start
	urgent    bool   // a message with content has arrived since the last announcement
}

const (
	// receives of one connection
	recvSlots  = 16
	reserve    = 2 // receives kept for messages that only announce credit
	creditMask = 1<<31 - 1
	notifyBit  = 1 << 31

	creditStep  = recvSlots / 2
	notifyShift = 30 // position of the steps in the immediate of a notification
)

func newCredit() credit {
	return credit{granted: recvSlots, posted: recvSlots, announced: recvSlots}
}

// free returns how many messages may be sent now.
func (c *credit) free() int { return max(0, c.left()-reserve) }

func (c *credit) left() int { return int(int32(c.granted - c.spent)) }

// spend spends one receive for a message, and returns its immediate.
func (c *credit) spend() uint32 {
	c.spent++
	return c.announce()
}

func (c *credit) announce() uint32 {
	c.announced, c.urgent = c.posted, false
	return c.posted & creditMask
}

// spendNotify spends one receive for a notification, and returns its immediate.
func (c *credit) spendNotify(notify uint32) uint32 {
	c.spent++
	if steps := c.posted &^ (creditStep - 1); int32(steps-c.announced) > 0 {
		c.announced, c.urgent = steps, false
	}
	return notify | c.posted/creditStep<<notifyShift
}

// onNotify splits the immediate of a notification, and reports whether it is possible.
func (c *credit) onNotify(imm uint32) (notify uint32, ok bool) {
	c.received++
	if more := (imm>>notifyShift - c.granted/creditStep) & 3; more > 0 {
		c.granted = (c.granted/creditStep + more) * creditStep
	}
	return imm & (1<<notifyShift - 1), c.valid()
}

// valid reports whether the peer has granted no more receives than there are, and no
// fewer than before, and has sent no more messages than were announced to it: if receives
// are shared, the surplus would use those of other peers.
func (c *credit) valid() bool {
	return uint32(c.left()) <= recvSlots && int32(c.received-c.announced) <= 0
}

// onMessage handles the credit in a peer's message, and reports whether it is possible.
func (c *credit) onMessage(n uint32, content bool) bool {
	c.received++
	c.urgent = c.urgent || content
	c.granted += (n - c.granted) & creditMask
	return c.valid()
}

// repost counts n receives that are posted again.
func (c *credit) repost(n int) { c.posted += uint32(n) }

// due reports whether the credit should be announced without waiting for a message that
// would carry it.
func (c *credit) due() bool {
	return int32(c.posted-c.announced) >= creditStep && c.left() > 0 && (c.urgent || int32(c.announced-c.received) <= 2*reserve)
}
