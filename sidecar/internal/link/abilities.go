package link

// Abilities are what a link can do beyond carrying frames. The link's method Abilities
// returns them; the engine calls it once, when the link is made, and they stay the same
// for the life of the link. An ability that the link lacks is nil (CallsC: false), and
// the comment of each field says what the engine does then.
//
// An ability of one call is a function. Calls that a link has only together are an
// interface: Remote, Caster, Lender. Caps, not Abilities, says which of them work with
// which peer, and up to which size.
//
//	              local  node  tcp  verbs  ether
//	Attach          -      x    x     x      x
//	PeerCaps        -      x    -     x      x
//	Break           -      x    x     x      x
//	Commit          -      -    -     x      x
//	FD              -      x    x     x      x
//	Arm             -      x    x     x      x
//	CallsC          -      -    -     x      -
//	Remote          x      x    -     x      x
//	Expose          -      -    -     x      -
//	Release         -      x    -     x      -
//	Withdraw        -      -    -     x      -
//	Caster          -      -    -     x      -
//	Gatherer        -      -    -     x      -
//	Lender          -      -    -     x      -
//	AddRegion       -      -    -     x      -
//	ShareRegion     -      x    -     -      -
//	DropRegion      -      x    -     x      -
//	Bytes           -      x    x     x      x
//	Direct          -      x    -     x      x
//	Paths           -      -    -     -      x
//	Lent            -      -    -     x      -
//	Buffers         -      -    -     x      -
//	EndSession      -      -    -     x      -
type Abilities struct {
	// Attach takes ownership of the connected socket fd, which replaces an older one.
	// ErrLater means that the link has not done so yet, and the engine calls again in the
	// next turn. If Attach is nil, the link makes its own connections, and sockets are
	// closed.
	Attach func(peer Peer, fd int) error
	// PeerCaps returns what the link can do with a connected peer. nil: Caps holds for
	// all.
	PeerCaps func(peer Peer) Caps
	// Break ends the connection to peer as a failing network would, as a drill. nil:
	// drills do not break the connections of this link.
	Break func(peer Peer)

	// Commit sends what the link has collected since the last Commit. nil: the link
	// collects nothing, and Post sends.
	Commit func()
	// FD returns a descriptor that is readable when Poll would find work, after a call of
	// Arm. nil: no event of this link wakes the engine.
	FD func() int
	// Arm is called before a sleep on FD, and reports whether there is work already. nil:
	// FD needs no preparation.
	Arm func() bool
	// CallsC says that the link calls C functions that may take long: the engine then
	// calls Go's scheduler itself (Engine.Breathe).
	CallsC bool

	// Remote accesses memory of peers, where Caps offers it. nil: the link cannot.
	Remote Remote
	// Expose registers a window, apart from the registrations that the link shares and
	// caches. nil: the engine uses Remote.Register.
	Expose func(ref Ref) (Key, error)
	// Release ends the use of a registration whose operation has completed, and which may
	// be retained for the next operation. nil: the registration ends, as after
	// Remote.Deregister.
	Release func(key Key)
	// Withdraw revokes the key of one peer while other peers have keys of the same memory
	// (Lender). nil: the engine uses Remote.Deregister.
	Withdraw func(peer Peer, key Key)
	// Caster makes small writes whose completion is not reported. nil: the engine uses
	// Remote.Write.
	Caster Caster
	// Gatherer sends from registered memory, and detects the buffers that are used often
	// enough to gather from them (core.Gatherer). nil: every small message is copied.
	Gatherer interface {
		Gathers(peer Peer, ref Ref) bool
	}
	// Lender reads from and into memory that applications have registered themselves.
	// nil: such memory is copied.
	Lender Lender

	// AddRegion is called for each region of a session before any part of it can be sent.
	// A link needs it if it retains registrations beyond the operations that they were
	// made for (package gather). nil: the link retains none.
	AddRegion func(region Region, session uint32, size uint64)
	// ShareRegion passes a session's memory to peers on this machine, as a descriptor:
	// size bytes of fd from off on. The link does not own fd. If it is nil or returns an
	// error, messages to peers on this machine are copied once more.
	ShareRegion func(region Region, fd int, off, size uint64) error
	// DropRegion is called before the memory of a region is unmapped: once it has
	// returned, the link does not touch the region any more. A link has it if it has
	// AddRegion, ShareRegion or Lender. nil: after its operations the link does not refer
	// to memory.
	DropRegion func(region Region)

	// Bytes returns the bytes moved so far. nil: they are not counted.
	Bytes func() (in, out uint64)
	// Paths returns the bytes moved so far by each path, if the link chooses between several
	// for a peer. nil: it has one.
	Paths func() []Path
	// Direct returns the number of peers that are reached by another way than their
	// sockets. nil: none.
	Direct func() int
	// Lent returns the counts of Lender. nil: nothing is lent.
	Lent func() LentCounts
	// Buffers counts how much of a session's memory was copied and how much was gathered.
	// EndSession ends that count before the number is given to another session. A link has
	// both or neither. nil: everything is copied, and not counted.
	Buffers    func(session uint32) BufferCounts
	EndSession func(session uint32)
}

// Path is one way on which a link moves bytes.
type Path struct {
	Name string `json:"name"`
	In   uint64 `json:"in"`  // bytes
	Out  uint64 `json:"out"` // bytes
	// Dropped is the packets that the kernel dropped on this side, most often for want of room.
	Dropped uint64 `json:"dropped,omitempty"`
	// Peers is the number of peers from which large payloads come on this path, and Rate the bytes a
	// second that were measured with a peer, the median over all; both are 0 if the link does not
	// compare paths.
	Peers int    `json:"peers,omitempty"`
	Rate  uint64 `json:"rate,omitempty"`
}

// BufferCounts counts the buffers of one session that a link copies from and gathers
// from. Metrics, the report and `outrigger top` show them.
type BufferCounts struct {
	Seen          uint64 // buffers that were used and are large enough to be gathered
	Frequent      uint64 // of these, buffers that are gathered from
	Registered    uint64 // registrations made for them
	PinnedBytes   uint64 // bytes registered now, for gathers and for peers
	CopiedBytes   uint64
	GatheredBytes uint64 // bytes sent without a copy
	Stopped       bool   // too few buffers are used again: no more are observed
}

// Add returns the sum of c and the counts d of a later session of the same rank.
func (c BufferCounts) Add(d BufferCounts) BufferCounts {
	return BufferCounts{
		Seen: c.Seen + d.Seen, Frequent: c.Frequent + d.Frequent, Registered: c.Registered + d.Registered, PinnedBytes: c.PinnedBytes + d.PinnedBytes,
		CopiedBytes: c.CopiedBytes + d.CopiedBytes, GatheredBytes: c.GatheredBytes + d.GatheredBytes, Stopped: d.Stopped,
	}
}
