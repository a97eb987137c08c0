package verbs

// credit counts the receives that a peer has posted for this side, and those
// that this side has posted for the peer. Every message that takes a receive
// spends one; every message says how many its sender has posted since the start,
// modulo 2^31 (the upper bit of the immediate is for a notice).
//
// A notice that is a write's own immediate has two bits for it: the number in steps of
// half a queue, modulo 4. It cannot be three steps behind, since there are two.
//
// A message without content says nothing else. One is sent when as many as half
// are not told, and for it reserve receives are kept: until the next one is due
// the peer must have sent more than it could without having heard of this one, so
// that at most one of them is unaccounted for. What has come by notices alone is most
// often answered by some, which tell it: it waits until the peer has few left.
type credit struct {
	granted uint32 // by the peer, since the start
	spent   uint32
	posted  uint32 // for the peer, since the start
	told    uint32
	came    uint32 // from the peer, since the start
	hurry   bool   // a message with content among them, since it was told
}

const (
	recvSlots  = 16
	reserve    = 2
	creditMask = 1<<31 - 1
	noticeBit  = 1 << 31

	creditStep  = recvSlots / 2
	noticeShift = 30 // of the steps, behind a notice that is an immediate
)

func newCredit() credit {
	return credit{granted: recvSlots, posted: recvSlots, told: recvSlots}
}

// free is how many messages may be sent now.
func (c *credit) free() int { return max(0, c.left()-reserve) }

func (c *credit) left() int { return int(int32(c.granted - c.spent)) }

// spend takes one for a message, and returns the immediate that tells the peer.
func (c *credit) spend() uint32 {
	c.spent++
	return c.tell()
}

func (c *credit) tell() uint32 {
	c.told, c.hurry = c.posted, false
	return c.posted & creditMask
}

// spendNotice takes one for a notice, and returns its immediate.
func (c *credit) spendNotice(notice uint32) uint32 {
	c.spent++
	if steps := c.posted &^ (creditStep - 1); int32(steps-c.told) > 0 {
		c.told, c.hurry = steps, false
	}
	return notice | c.posted/creditStep<<noticeShift
}

// heardNotice takes the immediate of a notice apart, and reports whether it can be right.
func (c *credit) heardNotice(imm uint32) (notice uint32, ok bool) {
	c.came++
	if more := (imm>>noticeShift - c.granted/creditStep) & 3; more > 0 {
		c.granted = (c.granted/creditStep + more) * creditStep
	}
	return imm & (1<<noticeShift - 1), c.right()
}

// right reports that the peer has granted no more receives than there are, and none less
// than before, and has sent no more messages than it was told of: where receives are shared
// those are others'.
func (c *credit) right() bool {
	return uint32(c.left()) <= recvSlots && int32(c.came-c.told) <= 0
}

// heard takes the number of a peer's message, and reports whether it can be right.
func (c *credit) heard(n uint32, content bool) bool {
	c.came++
	c.hurry = c.hurry || content
	c.granted += (n - c.granted) & creditMask
	return c.right()
}

// repost counts n receives that are posted again.
func (c *credit) repost(n int) { c.posted += uint32(n) }

// due reports that the peer should be told without waiting for a message that
// goes there anyway.
func (c *credit) due() bool {
	return int32(c.posted-c.told) >= creditStep && c.left() > 0 && (c.hurry || int32(c.told-c.came) <= 2*reserve)
}
