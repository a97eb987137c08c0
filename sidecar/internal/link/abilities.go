package link

// Abilities are what a link can do beyond carrying frames. A link fills them in by its
// method Abilities, which the engine calls once, when it is made; they stay the same for
// the life of the link. What a link cannot do is left nil (CallsC: false), and the comment
// of each field says what the engine does then.
//
// An ability of one call is a function. Calls that a link has only together are an
// interface: Remote, Caster, Lender. What a link can do with which peer, and how large, is
// not here but in Caps.
//
//	              local  node  tcp  verbs
//	Attach          -      x    x     x
//	PeerCaps        -      x    -     x
//	Break           -      x    x     x
//	Commit          -      -    -     x
//	FD              -      x    x     x
//	Arm             -      x    -     x
//	CallsC          -      -    -     x
//	Remote          x      x    -     x
//	Expose          -      -    -     x
//	Release         -      x    -     x
//	Withdraw        -      -    -     x
//	Caster          -      -    -     x
//	Gatherer        -      -    -     x
//	Lender          -      -    -     x
//	AddRegion       -      -    -     x
//	ShareRegion     -      x    -     -
//	DropRegion      -      x    -     x
//	Bytes           -      x    x     x
//	Direct          -      x    -     x
//	Lent            -      -    -     x
//	Buffers         -      -    -     x
//	EndSession      -      -    -     x
type Abilities struct {
	// Attach takes over the connected socket fd, replacing an older one. ErrLater: it has
	// not yet, and is to be asked again in the next turn. nil: the link makes its own
	// connections, and a socket is closed.
	Attach func(peer Peer, fd int) error
	// PeerCaps says what the link can do with a connected peer. nil: Caps holds for all.
	PeerCaps func(peer Peer) Caps
	// Break ends the connection to peer as a failing network would, as a drill. nil: the
	// connections of this link are not broken on purpose.
	Break func(peer Peer)

	// Commit sends what the link has collected since the last Commit. nil: it collects
	// nothing, Post sends.
	Commit func()
	// FD is a descriptor that is readable when Poll would find work, once Arm has been
	// asked. nil: nothing of this link ends a sleep of the engine.
	FD func() int
	// Arm is called before a sleep on FD, and reports whether there is work already. nil:
	// FD needs no preparation.
	Arm func() bool
	// CallsC says that the link calls C, which may take long: the engine then goes through
	// Go's scheduler by itself (Engine.Breathe).
	CallsC bool

	// Remote reaches memory of peers, where Caps offers it. nil: it does not.
	Remote Remote
	// Expose registers a window, apart from the registrations that the link shares and
	// keeps. nil: Remote.Register does it.
	Expose func(ref Ref) (Key, error)
	// Release ends the use of a registration whose operation has ended in order, and which
	// may be kept for the next one. nil: the registration ends, as after Remote.Deregister.
	Release func(key Key)
	// Withdraw takes a key back from the one peer that it was given to, where other peers
	// have keys of the same memory (Lender). nil: Remote.Deregister does it.
	Withdraw func(peer Peer, key Key)
	// Caster makes small writes whose end is not told. nil: Remote.Write does it.
	Caster Caster
	// Gatherer sends from registered memory, and knows which buffers are used so often
	// that it gathers from them (core.Gatherer). nil: every small message is copied.
	Gatherer interface {
		Gathers(peer Peer, ref Ref) bool
	}
	// Lender reads from and into memory that applications have registered themselves. nil:
	// such memory is copied.
	Lender Lender

	// AddRegion is called for each region of a session before anything of it can be sent,
	// by a link that keeps registrations beyond the operations that they were made for
	// (package gather). nil: the link keeps none.
	AddRegion func(region Region, session uint32, size uint64)
	// ShareRegion passes a session's memory to peers of this machine, as a descriptor:
	// size bytes from off on of fd, which the link does not keep. nil, or an error: what
	// peers of this machine are sent is copied once more.
	ShareRegion func(region Region, fd int, off, size uint64) error
	// DropRegion is called before the memory of a region is unmapped: when it has
	// returned, the link does not touch the region any more. A link has it if it has
	// AddRegion, ShareRegion or Lender. nil: the link knows no memory after the operations
	// there.
	DropRegion func(region Region)

	// Bytes are those that were moved so far. nil: they are not counted.
	Bytes func() (in, out uint64)
	// Direct is how many peers were reached beside their sockets. nil: none.
	Direct func() int
	// Lent counts what Lender has done. nil: nothing is lent.
	Lent func() LentCounts
	// Buffers counts what of a session's memory was copied and what was gathered, and
	// EndSession ends that count before the number is given to another session. A link has
	// both or neither. nil: everything is copied, and not counted.
	Buffers    func(session uint32) BufferCounts
	EndSession func(session uint32)
}

// BufferCounts count the buffers of one session that a link copies from and gathers from,
// as metrics, the report and `outrigger top` show them.
type BufferCounts struct {
	Seen          uint64 // buffers that were used and are large enough
	Frequent      uint64 // of them those that are gathered from
	Registered    uint64 // registrations spent on them
	PinnedBytes   uint64 // registered now, for gathers and for peers
	CopiedBytes   uint64
	GatheredBytes uint64 // not copied
	Stopped       bool   // too few buffers are used again: no more are watched
}

// Add adds the counts of another session of the same rank.
func (c BufferCounts) Add(d BufferCounts) BufferCounts {
	return BufferCounts{
		Seen: c.Seen + d.Seen, Frequent: c.Frequent + d.Frequent, Registered: c.Registered + d.Registered, PinnedBytes: c.PinnedBytes + d.PinnedBytes,
		CopiedBytes: c.CopiedBytes + d.CopiedBytes, GatheredBytes: c.GatheredBytes + d.GatheredBytes, Stopped: d.Stopped,
	}
}
