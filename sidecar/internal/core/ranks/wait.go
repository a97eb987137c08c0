package ranks

// WaitKind is the kind of operation that a request waits in.
type WaitKind uint8

// Kinds of waits.
const (
	WaitRecv WaitKind = iota
	WaitSend
	WaitProbe
	WaitColl
	WaitOneSided
)

// Wait is a request that has not ended.
type Wait struct {
	Kind    WaitKind
	Since   int64  // when the operation was submitted
	Peer    uint32 // source or destination, a world rank; AnySource: any, or none in particular
	Context uint32
	Tag     uint64
	Ignore  uint64 // bits of the tag that do not count
	Bytes   uint64
	Moving  bool // the operation's message is matched, and under way
	Op      uint8
	Round   int      // round of a collective, from 1 on
	Rounds  int      // number of rounds of the collective
	For     []uint32 // ranks that a collective waits for in its round
	Group   int      // ranks of the operation's communicator
	Number  uint32   // number of the collective in the operation's communicator
	Count   uint32   // in the record of the past: consecutive collectives of one kind, up to Number
	Lead    uint32   // rank 0 of the operation's communicator, a world rank
	Root    uint32   // root of the collective, a world rank; AnySource: it has none
	Window  uint32   // that a barrier fences; 0: none

	Reduces, Commutative bool // the operation combines, in any order
}
