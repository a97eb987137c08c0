// Package memory computes how much memory a sidecar needs. The operator sets the
// container's limit by it, and the sidecar allocates memory for its ranks by it, so
// that all ranks of a job can attach if its limit is at least Need.
package memory

// Sizes has the properties of a job that determine its sidecars' memory; sizes are in bytes.
type Sizes struct {
	Arena     int64 // bytes of the largest arena of a rank
	First     bool  // only the first piece of the arena is counted (Counted)
	Slab      int64 // bytes of the slab of a rank
	Credit    int64 // bytes of eager messages in flight from a peer, at most
	Encrypted bool  // data between sidecars is encrypted
	Registers bool  // the link registers memory with a card: RDMA
	MPI       bool  // ranks find each other by process management
	Ether     bool  // small messages may go by UDP or raw Ethernet
	Raw       bool  // they go by raw Ethernet
}

// Sizes of a job that sets no others, in bytes.
const (
	ArenaDefault  = 256 << 20
	SlabDefault   = 4 << 20
	CreditDefault = 1 << 20
)

// ArenaFirst is the part of an arena of default size that is counted, in bytes: each rank is
// certain to get that much. An MPI program whose allocations are not in the arena uses up to
// 2 MiB of it for messages in flight, and works with less.
const ArenaFirst = 4 << 20

// ManyPods is the most pods of a job in which each peer may have CreditDefault.
const ManyPods = 256

// Connections of a job of more than ManyConns pods. The kernel chooses the buffers of those of a
// smaller job.
const (
	ManyConns  = 128
	ConnBuffer = 32 << 10  // buffer in each direction, in bytes
	WideBuffer = 256 << 10 // the same of a connection that moves much
	WideConns  = 64        // the most such connections of a sidecar
)

// CreditLeast is the least credit of each peer, in bytes: one message of the largest class, 256 of
// the smallest.
const CreditLeast = 64 << 10

// CreditBudget returns the bytes by which the credit of all peers of a sidecar together may exceed
// CreditLeast each. A peer that needs it has up to credit.
func CreditBudget(credit int64) int64 { return max(32<<20, 8*credit) }

// CreditFirst returns the credit of each peer at first, in bytes. Half of the budget is divided
// among all peers from the start, so that a job of few pods begins with its full credit. All
// sidecars of a job have the same (PROTOCOL §3.4).
func CreditFirst(credit int64, pods int) int64 {
	share := CreditBudget(credit) / 2 / int64(max(pods, 1))
	return min(CreditLeast+share&^(CreditLeast-1), credit)
}

// CreditOfSpare returns how much larger the budget may be if the sidecar has more memory than the
// formula requires. The records of as many messages take a little more than that again.
func CreditOfSpare(spare int64) int64 { return spare / 10 }

// EagerRecord is the bytes of the record of a message that waits for its receive, in addition to the
// message (core TestRecordsOfMessages).
const EagerRecord = 300

// PoolWarm is the most bytes of free memory for eager messages that a sidecar keeps.
const PoolWarm = 4 << 20

// CopiesMax is the most bytes in copies of eager messages on the sending side.
const CopiesMax = 32 << 20

// CreditOf returns the default credit of each peer in a job of that many pods, in bytes. The
// total for ManyPods is divided among more pods, down to the least that the protocol allows.
func CreditOf(pods int) int64 {
	const least, step = 128 << 10, 64 << 10
	share := int64(ManyPods*CreditDefault) / int64(max(pods, ManyPods)) &^ (step - 1)
	return max(share, least)
}

// Registrations is the memory of the caches of buffers and registrations of a link that
// registers memory, in bytes. The caches' bounds (docs/reuse.md) are those of the sidecar and
// not of a rank: at most 60 MiB are alive, and the garbage collector lets the heap grow to one
// and a half times that. The pinned memory is the ranks' and is counted with them; the maps of
// its pages grow with it, and are in tableShare.
const Registrations = 96 << 20

// EtherStore is the most bytes of packets of the ether link that are not acknowledged, and the
// most bytes of packets that wait at their receiver because an earlier one is missing.
const EtherStore = 16 << 20

// EtherRing is the memory of the ring into which the kernel copies frames of raw Ethernet. A
// frame takes 2 KiB if the MTU is 1500, and 16 KiB if it is 9000: 4096 or 512 frames. Linux 6.18
// does not charge the ring to the container (measured); it is counted because no document of the
// kernel says so.
const EtherRing = 8 << 20

// EtherSocket is the size of the buffer of packets that have arrived that the ether link asks for,
// if packets go by UDP. The kernel doubles it, and charges what is in it to the container.
const EtherSocket = 4 << 20

// Bounds of connections of unauthenticated clients at the addresses for metrics and health.
const (
	WatchListeners = 2        // maximum number of addresses at which a sidecar listens
	WatchSlots     = 32       // maximum number of connections at each address
	WatchBuffer    = 32 << 10 // the kernel's buffer in each direction of a connection, in bytes
)

// Memory that a sidecar needs in addition to the memory that it shares with its ranks, in bytes.
const (
	// watchBytes is the memory of a connection at an address for metrics: twice WatchBuffer in
	// each direction, another output buffer for a connection that was closed before its client
	// had read everything, a header of 12 KiB and its parsed form, and a goroutine.
	watchBytes = 256 << 10
	// baseBytes is the memory of the program and its stacks before the first connection: 10 MiB
	// were measured, with the pages of the program's file that are in use.
	baseBytes = 24 << 20
	// startBytes is the memory of a sidecar and its launcher before the first message, on a
	// machine that runs several pods: 4 MiB and 1.2 MiB were measured for one pair, 6 MiB and
	// 1.5 MiB for each of 64 pairs.
	startBytes = 16 << 20
	// rankBytes is the memory of a rank's two rings, its requests and its records.
	rankBytes = 1 << 20
	// peerBytes is the memory of a connection: the buffers of the link and of the kernel, and
	// the rings of small messages if the link writes to remote memory. The kernel used 1.7 MiB for
	// each end of 1,000 connections over loopback whose reader was too slow. In a job of more than
	// ManyConns pods it uses up to 5.5 times the buffer of one direction (link/tcp
	// TestBuffersOfLargeJobs), the link has 42 KiB of output, and there are wideBytes for all. A
	// connection with segments of 64 KiB, as within a machine, may use 560 KiB: the sum still
	// suffices for 435 of them.
	peerBytes = 2 << 20
	farBytes  = 224 << 10
	wideBytes = WideConns * 11 * WideBuffer / 2
	// poolBytes is the memory of a peer in the pool of eager messages beyond its credit: a
	// payload that passes through without credit, and a page for small messages of each of two
	// sizes that is not full.
	poolBytes = 64<<10 + 2*4<<10
	// copyClasses is the number of sizes of copies: memory for one size is not used for another
	// before all of CopiesMax is in use. wireUnit is the least credit of a message (PROTOCOL §3.4).
	copyClasses = 5
	wireUnit    = 256
	// etherBytes is the memory of the ether link: EtherStore twice, half as much of it again as
	// garbage, 4 MiB of free packets, 0.8 MiB of buffers of system calls, 1 MiB of pulls, and 0.3 MiB
	// of trials.
	// etherPeer is the state of a connection without packets; its windows of 56 KiB are a part of
	// the garbage.
	etherBytes = 3*EtherStore + 7<<20
	etherPeer  = 4 << 10
	// pumpBytes is the memory that encryption adds to a connection, a pair of sockets; farPump
	// is the same in a job of more than ManyConns pods.
	pumpBytes = 2 << 20
	farPump   = 960 << 10
	// cellBytes is the memory of a cell of the traffic matrix, which has a row for each rank of
	// this pod and a column for each rank with which that rank has communicated, at most
	// cellsMax: the counters, in a table that may be only three eighths full, their copies, and
	// the text of the report, of 75 bytes a cell: the report that is being read, the next one,
	// and the encoder's buffer.
	cellBytes = 384
	cellsMax  = 4096
	// tableShare is the fraction, 1/128, that is added to shared memory. In addition to the
	// pages the kernel charges page tables and the index of a file's pages: 17 to 18 bytes for
	// each page of 4096. A sidecar that registers the pages has two maps of them, of 4 bytes a
	// page each. 1/128 of a page is 32 bytes.
	tableShare = 128
)

// Counted returns the bytes of a rank's arena that are counted before its job starts. The
// arena's size is a limit; its memory is allocated when the rank uses it. An arena is counted
// in full if the job set its size or uses it for a program's allocations, and a default one by
// its first piece.
func (s Sizes) Counted() int64 {
	if s.First {
		return min(s.Arena, ArenaFirst)
	}
	return s.Arena
}

// Rank returns the bytes of the sidecar's limit that one rank uses.
func (s Sizes) Rank() int64 { return s.Attached() + Piece(s.Counted()) }

// Attached returns the bytes that a rank uses when it attaches, without its arena.
func (s Sizes) Attached() int64 { return Piece(s.Slab + rankBytes) }

// Piece returns the bytes that n bytes of shared memory use, page tables included.
func Piece(n int64) int64 { return n + n/tableShare }

// Own returns the bytes that the sidecar uses itself in a pod of here ranks, in a job of ranks
// ranks in pods pods.
func (s Sizes) Own(here, ranks, pods int) int64 {
	peers := int64(pods - 1)
	n := s.Heap(here, ranks, pods) + s.Eager(pods) + ofPeers(peers, peerBytes, farBytes, wideBytes)
	if s.Encrypted {
		n += ofPeers(peers, pumpBytes, farPump, 0)
	}
	switch {
	case s.Raw:
		n += EtherRing
	case s.Ether:
		n += 2 * EtherSocket
	}
	return n
}

// Heap returns the part of Own that the Go program itself may use. It is set as the memory limit
// of Go's runtime, without which there would be as much garbage as live memory. The rest of Own
// is the kernel's, or mapped memory.
func (s Sizes) Heap(here, ranks, pods int) int64 {
	n := baseBytes + int64(WatchListeners*WatchSlots*watchBytes) + kept(here, ranks, pods) + s.credit(pods)/wireUnit*EagerRecord + int64(here)*int64(min(ranks, cellsMax))*cellBytes
	if s.MPI {
		n += launch(here, ranks, pods)
	}
	if s.Registers {
		n += Registrations
	}
	if s.Ether {
		n += etherBytes + int64(pods)*etherPeer
	}
	return n
}

// ofPeers returns the bytes of the connections to all peers, which never decrease with the
// number of peers.
func ofPeers(peers, near, far, wide int64) int64 {
	if peers < ManyConns {
		return peers * near
	}
	return max(ManyConns*near, peers*far+wide)
}

// Eager returns the bytes that eager messages of all pods of the job, this one's included, can
// make a sidecar keep: messages that wait for their receive, and copies of messages that have
// not been acknowledged.
func (s Sizes) Eager(pods int) int64 {
	credit := s.credit(pods)
	return credit + int64(pods)*poolBytes + PoolWarm + min(copyClasses*credit, CopiesMax)
}

// credit returns the most credit that all peers have at a time.
func (s Sizes) credit(pods int) int64 {
	return min(int64(pods)*s.Credit, int64(pods)*CreditLeast+CreditBudget(s.Credit))
}

// Need returns the memory of a sidecar in a pod of here ranks. All of it is charged to the
// sidecar, which allocates its ranks' memory before they access it. The result is a multiple of
// 1 MiB, because the kernel rounds a limit down to whole pages.
func (s Sizes) Need(here, ranks, pods int) int64 {
	n := int64(here)*s.Rank() + s.Own(here, ranks, pods)
	return (n + 1<<20 - 1) &^ (1<<20 - 1)
}

// AtStart returns the bytes that all pods of a job use on one machine until all ranks have
// started.
func (s Sizes) AtStart(ranks, pods int) int64 {
	return int64(pods)*startBytes + int64(ranks)*s.Rank()
}

// ArenaFor returns the largest arena that each rank can use in full if that many bytes are
// available; 0: there is no memory for arenas.
func (s Sizes) ArenaFor(available int64, ranks, pods int) int64 {
	s.Arena, s.First = 0, false
	if ranks == 0 {
		return 0
	}
	left := (available - s.AtStart(ranks, pods)) / int64(ranks)
	return max(left-left/tableShare, 0) // the arena and its page tables together take at most left bytes
}

// Default returns the size of the arena in a job that sets none: ArenaDefault, or less if not
// all ranks could use that much.
func (s Sizes) Default(available int64, ranks, pods int) int64 {
	const unit = 1 << 20
	return min(max(s.ArenaFor(available, ranks, pods)&^(unit-1), ArenaFirst), ArenaDefault)
}
