package channel

import (
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Regions of memory that the room uses.
const (
	RegionNone    link.Region = 0
	RegionDiscard link.Region = 2 // wire.FrameMax bytes that are never read
	RegionRings   link.Region = 3 // rings for small frames; Config.RingBytes of address space
)

// Ports are the services of the engine for the room.
type Ports interface {
	Bytes(ref link.Ref) []byte
	Register(peer link.Peer, ref link.Ref) (link.Key, error)
	Deregister(peer link.Peer, key link.Key)
	// Connect asks for a connection to peer; LinkUp or LinkFailed follows.
	Connect(peer link.Peer)
	// Disconnect closes the connection to peer.
	Disconnect(peer link.Peer)
	// Note puts a protocol event into the flight recorder.
	Note(kind ranks.NoteKind, peer link.Peer, rank uint32, tag, size, seq uint64)
}

// Handler is the room's user. The room calls it, and nothing else above.
type Handler interface {
	// Frame handles the next frame in order, with its payload. An error means that the peer
	// violated the protocol (P§6), here and in all methods that return one.
	Frame(p link.Peer, h *wire.Header, payload []byte) error
	// Destination returns where the payload of the next frame in order goes.
	Destination(p link.Peer, h *wire.Header) (link.Ref, error)
	// Placed is called when the payload of a frame is at its destination.
	Placed(p link.Peer, h *wire.Header, at link.Ref) error

	// Released carries out the release of a frame that has arrived, or is acknowledged.
	Released(p link.Peer, r Release, f *link.Frame)
	// Dropped carries out the release of a frame to a peer that is dead.
	Dropped(p link.Peer, r Release, f *link.Frame)
	// Ended is called when all frames to a dead peer are dropped.
	Ended(p link.Peer)
	// Feed emits the next frame of a transfer, if it has one now. It reports whether there are
	// more, now or later.
	Feed(p link.Peer, t Transfer) (more bool)
	// Announce is called before a frame is emitted to a peer that is unannounced.
	Announce(p link.Peer)

	// Up is called when there is a connection to a peer. Frames that are emitted here precede
	// all frames that are emitted later.
	Up(p link.Peer)
	// Greeted is called with the first frame of a connection.
	Greeted(p link.Peer, h *wire.Header)
	// Leaving is called for a goodbye before its acknowledgement counts: the goodbye shows
	// which of the acknowledged frames arrived too late.
	Leaving(p link.Peer, h *wire.Header)
	// Down is called when a connection has broken. It reports whether there is to be another
	// one; else it has called Bury or Rest.
	Down(p link.Peer, err error) (again bool)
	// Lost is called when a peer is dead. It calls Bury.
	Lost(p link.Peer, cause error)

	// Rejects reports whether a dead peer that connects again has to be notified that it is
	// dead.
	Rejects(p link.Peer) bool
	// Reject emits the one frame of that notification.
	Reject(p link.Peer)
	// Rejected is called when that peer was notified, or could not be.
	Rejected(p link.Peer)

	// WriteRing starts the remote write of a part of a ring; RingWritten follows with number.
	WriteRing(p link.Peer, number uint64, src link.Ref, dst link.Key, notify uint64) error
}

// Config fixes a room for its life.
type Config struct {
	Self        link.Peer
	Peers       int
	First, Last uint32 // lowest and highest rank of this sidecar

	CreditBytes   uint64        // eager bytes in flight from one peer: the widest window
	CreditFirst   uint64        // the window of a peer at first
	Widens        bool          // windows are widened and narrowed
	CreditBudget  uint64        // bytes by which all windows together may be wider than CreditFirst
	Heartbeat     time.Duration // silence after which a heartbeat is sent
	DeadAfter     time.Duration // silence, or failed reconnecting, after which a peer is dead
	StartWithin   time.Duration // how long a peer may take to be reached for the first time
	HungAfter     time.Duration // silence after which a peer is dead although its machine Answers; default DeadAfter
	FragmentBytes uint64        // bytes of a transfer in one frame
	AheadBytes    uint64        // bytes of transfers that may wait for a link
	// Answers reports whether the kernel of a silent peer's machine has acknowledged what was sent
	// to the peer, so that its process gets no processor, is stopped or hangs; nil: not known.
	Answers  func(p link.Peer) bool
	AckDelay time.Duration // how long an acknowledgement may wait for a frame that carries it

	Schedules uint64 // number of the schedules of collectives, for greetings

	Rings     eagerring.Kind // how small frames go by remote write
	FastPeers int            // most peers with a ring
	Caster    link.Caster    // takes writes to rings whose end is not reported; nil: each is reported
	LookAfter uint64         // frames of a ring that are taken without a sleep before their sender leaves out the notifications
}

// RingBytes returns the number of bytes that RegionRings needs.
func (c *Config) RingBytes() uint64 { return uint64(c.FastPeers) * c.laneBytes() }

// laneBytes returns the size of the part of RegionRings that one fast peer has: the ring to
// which it writes, and the memory from which this sidecar writes to the peer's ring.
func (c *Config) laneBytes() uint64 { return 2 * c.Rings.Bytes() }

// Room is the streams of frames to all peers.
type Room struct {
	cfg   Config
	ports Ports
	user  Handler
	now   int64 // nanoseconds, as of the current event

	failed   bool // the job has failed,
	failedAt int64

	peers    []Peer
	accounts Accounts        // of all peers
	lanes    []link.Peer     // peers with memory in RegionRings, in the order of that memory
	visits   visits          // lanes whose rings are polled
	part     eagerring.Frame // the frame that is being read out of a ring
	dirty    []link.Peer     // peers with frames to post or acknowledgements owed
	held     []link.Peer     // peers of dirty that this Flush leaves for the next one
	budget   budget          // budget of the current Flush
	windows  windows
	owed     []link.Peer // peers that are owed an acknowledgement by a certain time
	timers   Timers
	tickDue  int64   // when Tick is to be called again at the latest; 0: it never was
	waiting  []int32 // messages that no link has taken, by rank from cfg.First on
	stats    Stats
}

// Stats are counters since the room's start; the last group are levels.
type Stats struct {
	FramesIn, FramesOut uint64
	RingFrames          uint64 // frames of FramesOut that were sent by remote write
	RingTaken           uint64 // slots of rings that peers have filled, and that were emptied
	RingVisits          uint64 // rings that were looked at by PollRings
	CreditStalls        uint64 // eager messages for which there was no credit
	Widened             uint64 // windows that were widened
	Asked               uint64 // peers that were asked to give credit back
	Narrowed            uint64 // windows that were narrowed by that
	Unregistered        uint64 // registrations refused
	Breaks, Reconnects  uint64

	CreditUsed, CreditTaken, CreditReturned uint64 // bytes of credit used at peers, used by peers, and granted again to peers
	Rings                                   int
	Peers                                   int // other sidecars that were connected once
}

// New makes the room of a sidecar. All peers share allowed.
func New(cfg Config, ports Ports, user Handler, allowed *ranks.Allowance) *Room {
	r := &Room{cfg: cfg, ports: ports, user: user, accounts: Accounts{allowed: allowed}}
	r.windows.init(&r.cfg)
	r.peers = make([]Peer, cfg.Peers)
	for i := range r.peers {
		r.peers[i].init(link.Peer(i), &r.cfg, &r.accounts)
	}
	r.waiting = make([]int32, cfg.Last-cfg.First+1)
	return r
}

// At sets the time of the current event.
func (r *Room) At(now int64) { r.now = now }

// Now returns the time of the current event.
func (r *Room) Now() int64 { return r.now }

// JobFailed notes that the job has failed: frames wait for no generation any more, and peers
// that were never reached have DeadAfter from now on.
func (r *Room) JobFailed() { r.failed, r.failedAt = true, r.now }

// Peer returns a peer.
func (r *Room) Peer(id link.Peer) *Peer { return &r.peers[id] }

// Stats returns the counters as they stand.
func (r *Room) Stats() Stats {
	s := r.stats
	for i := range r.peers {
		p := &r.peers[i]
		if p.known && !p.self {
			s.Peers++
		}
		s.CreditUsed += uint64(p.credit.Used()) * wire.CreditUnit
		s.CreditTaken += uint64(p.credit.taken) * wire.CreditUnit
		s.CreditReturned += uint64(p.credit.Returned()) * wire.CreditUnit
	}
	return s
}
