package verbs

// credit counts the receives that a peer has posted for this side, and those
// that this side has posted for the peer. Every message that takes a receive
// spends one; every message says how many its sender has posted since the start,
// modulo 2^31 (the upper bit of the immediate is for a notice).
//
// A message without content says nothing else. One is sent when as many as half
// are not told, and for it reserve receives are kept: until the next one is due
// the peer must have sent more than it could without having heard of this one, so
// that at most one of them is unaccounted for.
type credit struct {
	granted uint32 // by the peer, since the start
	spent   uint32
	posted  uint32 // for the peer, since the start
	told    uint32
}

const (
	recvSlots  = 16
	reserve    = 2
	creditMask = 1<<31 - 1
	noticeBit  = 1 << 31
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
	c.told = c.posted
	return c.posted & creditMask
}

// heard takes a peer's number, and reports whether it can be right.
func (c *credit) heard(n uint32) bool {
	more := (n - c.granted) & creditMask
	if more == 0 {
		return true
	}
	c.granted += more
	return c.left() <= recvSlots
}

// repost counts n receives that are posted again.
func (c *credit) repost(n int) { c.posted += uint32(n) }

// due reports that the peer should be told without waiting for a message that
// goes there anyway.
func (c *credit) due() bool { return int(c.posted-c.told) >= recvSlots/2 && c.left() > 0 }
