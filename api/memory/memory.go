// Package memory is how much memory a sidecar needs. The operator sets the
// container's limit by it and the sidecar gives memory to its ranks by it, so
// that a job whose limit is what Need says can attach every one of its ranks.
package memory

// Sizes of what a sidecar reserves, in bytes.
type Sizes struct {
	Arena     int64 // the most of a rank
	First     bool  // of the arena only the first piece is counted (Counted)
	Slab      int64 // a rank
	Credit    int64 // a peer: eager messages under way
	Encrypted bool  // data between sidecars
	Registers bool  // memory at a card: RDMA
	MPI       bool  // ranks find each other by process management
}

// What is taken where nobody says anything.
const (
	ArenaDefault  = 256 << 20
	SlabDefault   = 4 << 20
	CreditDefault = 1 << 20
)

// ArenaFirst is what is counted of an arena of which nothing is known but that it is there:
// each rank is certain to get that much of it. An MPI program whose allocations lie
// elsewhere takes up to 2 MiB of it for messages on their way, and goes on with less.
const ArenaFirst = 4 << 20

// ManyPods is how many pods a job has before what a sidecar keeps for each of them
// is cut, since it keeps it for all: with more, connections have a small window,
// and senders less credit.
const ManyPods = 256

// FarWindow is the receive buffer of each connection in a job of more than ManyPods.
const FarWindow = 128 << 10

// CreditOf is the credit of each peer in a job of that many pods, where nobody
// says another one: as much as there was for ManyPods is divided among more, down
// to the least that the protocol allows.
func CreditOf(pods int) int64 {
	const least, step = 128 << 10, 64 << 10
	share := int64(ManyPods*CreditDefault) / int64(max(pods, ManyPods)) &^ (step - 1)
	return max(share, least)
}

// Registrations is what a sidecar keeps to know the buffers and the registrations of
// a link that registers memory, at the bounds of its caches (docs/reuse.md), which
// are those of the sidecar and not of a rank: at most 60 MiB are alive, and the
// garbage collector lets them be half as much again. What the kernel pins is the
// ranks' memory, which is counted already; the maps of its pages grow with it, and
// are in tableShare.
const Registrations = 96 << 20

// What strangers may take at the addresses for metrics and health, of which a sidecar
// has WatchListeners at most: connections at each, and the kernel's buffer in each
// direction of one.
const (
	WatchListeners = 2
	WatchPlaces    = 32
	WatchBuffer    = 32 << 10
)

// What a sidecar needs in addition to the memory that it shares with its ranks.
const (
	// watchBytes is a connection at an address for metrics: twice WatchBuffer in each
	// direction, the same once more outwards for one that was closed before its client
	// took all, a header of 12 KiB with what is made of it, and a goroutine.
	watchBytes = 256 << 10
	// baseBytes is the program, its stacks, and what it has before anything happens: 10 MiB
	// with the pages of the program's file that are in use.
	baseBytes = 24 << 20
	// startBytes is what a sidecar and a launcher of their own take on one machine before
	// anything is sent: 4 MiB and 1.2 MiB of a pair, 6 and 1.5 beside 63 other pairs.
	startBytes = 16 << 20
	// rankBytes is a rank's two rings, its requests and its records.
	rankBytes = 1 << 20
	// peerBytes is a connection: the link's buffers and the kernel's, and the
	// rings of small messages where the link writes remotely. In a job of more than
	// ManyPods no connection gets more than FarWindow to receive into, and is
	// farBytes: of 1,000 connections over loopback whose reader could not keep up,
	// both ends of each took 0.46 MiB of the kernel at most, and 1.7 MiB where the
	// kernel chose the window itself.
	peerBytes = 2 << 20
	farBytes  = 768 << 10
	// poolClasses are the sizes of eager messages that wait for their receive. A
	// place of one size is never one of another, so that a peer that fills its
	// credit with each in turn has made the sidecar touch this many windows of
	// credit; poolBytes is what a window that is no multiple of a size adds.
	poolClasses = 5
	poolBytes   = 64 << 10
	// pumpBytes is what encryption adds to a connection: a pair of sockets; farPump
	// where the connection's own window is small.
	pumpBytes = 2 << 20
	farPump   = 1 << 20
	// copiesMax bounds copies of eager messages on the sending side.
	copiesMax = 256 << 20
	// cellBytes is a cell of the traffic matrix, which has a row for each rank
	// of this pod and a column for each rank that it has talked to, up to cellsMax:
	// the counters, at three eighths of their table's load, their copies, and the
	// report's text of 75 bytes a cell: the one that is being read, the next one, and
	// what the encoder needs to make it.
	cellBytes = 384
	cellsMax  = 4096
	// The kernel charges page tables and the index of a file's pages beside the
	// pages: 17 to 18 bytes for each of 4096. A sidecar that registers them keeps two
	// maps of them, of 4 bytes each. This is 32.
	tableShare = 128
)

// Counted is how much of a rank's arena is counted before its job starts. An arena is a
// ceiling, whose memory is taken when the rank uses it: all is counted of one that was
// asked for, by its size or for a program's allocations, and the first piece of a default
// one.
func (s Sizes) Counted() int64 {
	if s.First {
		return min(s.Arena, ArenaFirst)
	}
	return s.Arena
}

// Rank is what one rank takes of the sidecar's limit.
func (s Sizes) Rank() int64 { return s.Attached() + Piece(s.Counted()) }

// Attached is what a rank takes when it attaches: of its arena nothing.
func (s Sizes) Attached() int64 { return Piece(s.Slab + rankBytes) }

// Piece is what n bytes of shared memory take, page tables and all.
func Piece(n int64) int64 { return n + n/tableShare }

// Own is what the sidecar keeps for itself in a pod of here ranks, in a job of
// ranks ranks in pods pods.
func (s Sizes) Own(here, ranks, pods int) int64 {
	peers := int64(pods - 1)
	n := s.Heap(here, ranks, pods) + s.Eager(pods) + ofPeers(peers, peerBytes, farBytes)
	if s.Encrypted {
		n += ofPeers(peers, pumpBytes, farPump)
	}
	return n
}

// Heap is what of Own the Go program itself may take, which its garbage collector is told:
// else there is as much garbage as there is memory in use. The rest is the kernel's, or
// memory that is mapped.
func (s Sizes) Heap(here, ranks, pods int) int64 {
	n := baseBytes + int64(WatchListeners*WatchPlaces*watchBytes) + kept(here, ranks, pods) + int64(here)*int64(min(ranks, cellsMax))*cellBytes
	if s.MPI {
		n += launch(here, ranks, pods)
	}
	if s.Registers {
		n += Registrations
	}
	return n
}

// ofPeers is what the connections to all peers take, and never less than those of
// a smaller job.
func ofPeers(peers, near, far int64) int64 {
	return max(min(peers, ManyPods)*near, peers*far)
}

// Eager is what messages of the job's pods, this one's among them, can make a
// sidecar keep: those that have come and wait for their receive, and copies of
// those that have not been acknowledged.
func (s Sizes) Eager(pods int) int64 {
	from := int64(pods)
	return from*(poolClasses*s.Credit+poolBytes) + min(from*s.Credit, copiesMax)
}

// Need is the memory of a sidecar of such a pod. All of it is charged to the
// sidecar, which allocates its ranks' memory before they touch it. It is whole MiB:
// the kernel cuts a limit down to whole pages.
func (s Sizes) Need(here, ranks, pods int) int64 {
	n := int64(here)*s.Rank() + s.Own(here, ranks, pods)
	return (n + 1<<20 - 1) &^ (1<<20 - 1)
}

// AtStart is what the pods of a job take on one machine until all ranks have started.
func (s Sizes) AtStart(ranks, pods int) int64 {
	return int64(pods)*startBytes + int64(ranks)*s.Rank()
}

// ArenaFor is the largest arena of which as much as is available counts in whole for each
// rank; 0: there is not enough for any.
func (s Sizes) ArenaFor(available int64, ranks, pods int) int64 {
	s.Arena, s.First = 0, false
	if ranks == 0 {
		return 0
	}
	left := (available - s.AtStart(ranks, pods)) / int64(ranks)
	return max(left-left/tableShare, 0) // no more than left with its page tables
}

// Default is the arena of a job that asks for none: a ceiling, which is lower where not
// all ranks could use it up.
func (s Sizes) Default(available int64, ranks, pods int) int64 {
	const unit = 1 << 20
	return min(max(s.ArenaFor(available, ranks, pods)&^(unit-1), ArenaFirst), ArenaDefault)
}
