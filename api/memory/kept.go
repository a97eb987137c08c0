package memory

// Bounds of the state that other processes can make a sidecar keep: programs of its ranks,
// peers, and any process that can connect to one of its addresses. The code that keeps each
// kind of state enforces its bound, and the formula of the memory limit counts it
// (TestEverythingKeptIsCounted). The sum is the memory limit of Go's runtime (Heap), so that
// garbage needs no memory in addition.
const (
	// RanksKept is the bytes that the open operations of all ranks of a pod may use together,
	// in addition to each rank's RankShare. It suffices for one rank that uses all of its
	// 65,536 request numbers at once, and has up to 2,048 windows, or communicators and shut
	// contexts of as many bytes. If a sidecar has more memory than the formula requires, this
	// bound and peersKept are larger.
	RanksKept = 64 << 20
	// RequestCost is the bytes of a request: up to 600 while it is open, and its entries in
	// the tables for each kind of request, which do not shrink.
	RequestCost = 984
	// NumberCost is the bytes of a request number that has been used.
	NumberCost = 24
	// CollCost is the bytes of a collective without its request and its vectors.
	CollCost = 1 << 10
	// ChunkCost is the bytes of a chunk of a message of private memory.
	ChunkCost = 96
	// WindowCost is the bytes of a window and of the record of the peers that access it;
	// CommCost those of a communicator without its list of ranks; ShutCost those of a context
	// that was shut.
	WindowCost = 448
	CommCost   = 128
	ShutCost   = 24

	// peersKept is the bytes that open announcements and requests of all peers may use
	// together: 87,000 announcements. In a job of many pods, whose first windows are smaller, it is
	// peersEach for each pod, up to peersMost. PeerShare is the bytes that each peer has in addition,
	// which other peers cannot use up: 341 announcements, as many as small messages without
	// credit of a peer that sends 512 of them before its window is widened.
	peersKept = 32 << 20
	peersEach = 512 << 10
	peersMost = 128 << 20
	PeerShare = 128 << 10
	// AnnounceCost is the bytes of an announced message that waits for its receive;
	// AnswerCost those of a frame that a peer has requested and not acknowledged; LockCost
	// those of a lock that a rank of a peer waits for or holds.
	AnnounceCost = 384
	AnswerCost   = 256
	LockCost     = 128

	// groupRank is the bytes of a rank in a communicator's list of ranks. GroupFixed is the
	// fixed cost of a list, counted in ranks.
	groupRank  = 24
	GroupFixed = 24
	// groupsLeast is the least bound of the ranks in all lists except the world's: 512
	// different lists of 1,024 ranks. In a large job the bound allows each rank of the job to
	// be in groupsOf lists. Communicators with the same ranks in the same order share a list.
	groupsLeast = 512 << 10
	groupsOf    = 16

	// PeerSlots, SessionSlots and RefusedSlots bound connections that are not authenticated
	// yet: those of peers, of which a TLS handshake uses 40 KiB each; those at the socket of
	// sessions; and there those of users that may not attach and have been refused. handshake
	// and greeting are the bytes of one connection.
	PeerSlots    = 128
	SessionSlots = 256
	RefusedSlots = 64
	handshake    = 48 << 10
	greeting     = 8 << 10
)

// RankShare returns the bytes that each rank's open operations may use regardless of other
// ranks: RequestsSure requests whose numbers are below that count.
func RankShare(ranks int) int64 { return RequestsSure(ranks) * (RequestCost + NumberCost) }

// RequestsSure returns how many requests each rank may always have: at least 2,048, and in jobs
// up to 7,680 ranks a send to and a receive from each rank, as an all-to-all has, and 1,024 more.
func RequestsSure(ranks int) int64 { return int64(max(2048, min(1024+2*ranks, 16384))) }

// PeersKept returns the bytes that peers may make a sidecar keep in addition to their shares.
// In a large job each rank may announce a large message to each of the here ranks of this pod,
// up to 256 MiB.
func PeersKept(here, ranks, pods int) int64 {
	return max(peersKept, min(int64(pods)*peersEach, peersMost), min(int64(here)*int64(ranks)*AnnounceCost, 256<<20))
}

// GroupsMax returns the bound of the ranks in all lists of a sidecar, plus GroupFixed for each
// list.
func GroupsMax(ranks int) int64 { return max(groupsLeast, groupsOf*int64(ranks)) }

// GroupsOfSpare returns how much larger that bound may be if the sidecar has more memory than the
// formula requires.
func GroupsOfSpare(spare int64) int64 { return spare / 16 / groupRank }

// kept returns the bytes that ranks and peers can make a sidecar keep, without eager messages.
func kept(here, ranks, pods int) int64 {
	return RanksKept + int64(here)*RankShare(ranks) + PeersKept(here, ranks, pods) + int64(pods)*PeerShare + GroupsMax(ranks)*groupRank + PeerSlots*handshake + (SessionSlots+RefusedSlots)*greeting
}

// Bounds of the state that processes of a pod, and sidecars of other pods, can make a sidecar
// keep for process management, if programs of the job use an MPI.
const (
	launchLeast = 24 << 20
	launchRank  = 4 << 10
	// LaunchPod is the most bytes of one pod in progress: its fences, or parts of meetings.
	LaunchPod = 8 << 20
	// launchSlot is the bytes of a connection that has not named its rank: a buffer of 4 KiB,
	// a goroutine, and the kernel's socket.
	launchSlot = 16 << 10
	// launchCommand is the bytes of a command for another pod: a connection on each side, the
	// buffers between them, and TLS.
	launchCommand = 160 << 10
)

// LaunchBytes returns the bytes that all ranks of the job may use for each of meetings, the
// keys and values of a program, and a round of the tree. A rank needs 1 to 2 KiB.
func LaunchBytes(ranks int) int64 { return max(launchLeast, int64(ranks)*launchRank) }

// LaunchSlots returns the most connections at each of two sockets that have not named their
// rank: those of all ranks of the pod at once, and the launcher's requests about them.
func LaunchSlots(here int) int { return 2*here + 256 }

// LaunchCommands returns the most commands to and from other pods at once: mpirun starts a
// daemon in each pod, and may start all from one pod.
func LaunchCommands(pods int) int { return 2*pods + 16 }

// launch returns the bytes for process management. A round of the tree is kept twice: the data
// of this pod and those below it, and the data from above.
func launch(here, ranks, pods int) int64 {
	return LaunchPod + 4*LaunchBytes(ranks) + 2*int64(LaunchSlots(here))*launchSlot + int64(LaunchCommands(pods))*launchCommand
}
