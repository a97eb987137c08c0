package memory

// What a sidecar keeps because another process makes it: a program of its ranks' users, a
// peer, or a stranger that has an address of it. Each kind is bounded in bytes, at the place
// where it is kept, by a number of this file or one that the formula takes from there
// (TestEverythingKeptIsCounted). Go's runtime is told what all of it may take (Heap), so that
// garbage does not come on top.
const (
	// RanksKept is for the open operations of all ranks of a pod together. It is those of one
	// rank that uses all of its 65,536 request numbers at once. RankShare is each rank's own.
	// Where a sidecar has more memory than the formula wants, this and peersKept are more.
	RanksKept = 64 << 20
	// RequestCost is a request: up to 600 bytes while it is open, and its places in the tables
	// of other kinds of requests, which are kept after them.
	RequestCost = 1000
	// NumberCost is a request number that has been used.
	NumberCost = 24
	// CollCost is a collective without its request and its vectors.
	CollCost = 1 << 10
	// ChunkCost is a chunk of a message of private memory.
	ChunkCost = 96

	// peersKept is for what all peers together have announced or asked for and what has not
	// come to its end: 87,000 announcements. PeerShare is each peer's own, which others
	// cannot use up.
	peersKept = 32 << 20
	PeerShare = 64 << 10
	// AnnounceCost is a message that its sender has announced and that waits for its receive;
	// AnswerCost is a frame that a peer has asked for and not acknowledged; LockCost is a lock
	// that a rank of a peer waits for.
	AnnounceCost = 384
	AnswerCost   = 256
	LockCost     = 128

	// groupRank is a rank of a list of ranks that communicators have. GroupFixed is the fixed
	// cost of a list, in ranks.
	groupRank  = 24
	GroupFixed = 24
	// groupsLeast bounds the ranks of all such lists, but the world's: 512 different lists of
	// 1,024 ranks. In a large job each rank of it may be in groupsOf lists. Communicators
	// whose ranks are the same in the same order share one.
	groupsLeast = 512 << 10
	groupsOf    = 16

	// Connections that have not shown whose they are: of peers, in whose TLS handshakes there
	// are 40 KiB each; at the socket of sessions; and there, of users that may not attach and
	// have been told.
	PeerPlaces    = 128
	SessionPlaces = 256
	RefusedPlaces = 64
	handshake     = 48 << 10
	greeting      = 8 << 10
)

// RankShare is what each rank may have open, whatever others have: a send to and a receive from
// each other rank, as of an all-to-all, and some more.
func RankShare(ranks int) int64 { return int64(max(2048, min(1024+2*ranks, 16384))) * RequestCost }

// PeersKept bounds what peers may make a sidecar keep beyond their shares: in a large job each
// rank may announce a large message to each rank of here, up to 256 MiB.
func PeersKept(here, ranks int) int64 {
	return max(peersKept, min(int64(here)*int64(ranks)*AnnounceCost, 256<<20))
}

// GroupsMax bounds the ranks of all lists of ranks of a sidecar, with GroupFixed for each.
func GroupsMax(ranks int) int64 { return max(groupsLeast, groupsOf*int64(ranks)) }

// kept is what ranks and peers can make a sidecar keep, without eager messages.
func kept(here, ranks, pods int) int64 {
	return RanksKept + int64(here)*RankShare(ranks) + PeersKept(here, ranks) + int64(pods)*PeerShare + GroupsMax(ranks)*groupRank + PeerPlaces*handshake + (SessionPlaces+RefusedPlaces)*greeting
}

// What processes of a pod, and sidecars of others, can make a sidecar keep for process
// management, where programs of the job use an MPI.
const (
	launchLeast = 24 << 20
	launchRank  = 4 << 10
	// LaunchPod bounds what one pod has under way: fences of its own, or pieces of meetings.
	LaunchPod = 8 << 20
	// launchPlace is a connection that has not said which rank it is: a buffer of 4 KiB, a
	// goroutine, and what the kernel keeps of it.
	launchPlace = 16 << 10
	// launchCommand is a command for another pod: a connection of each side, the buffers
	// between them, and TLS.
	launchCommand = 160 << 10
)

// LaunchBytes bounds what a sidecar keeps of all ranks of the job for each of: meetings, keys
// and values of a program, and what a round of the tree carries. A rank brings 1 to 2 KiB.
func LaunchBytes(ranks int) int64 { return max(launchLeast, int64(ranks)*launchRank) }

// LaunchPlaces bounds the connections at each of two sockets that have not said which rank
// they are: all ranks of the pod at once, and the launcher's questions about them.
func LaunchPlaces(here int) int { return 2*here + 256 }

// LaunchCommands bounds the commands for other pods, and of them for this one, that are
// carried at once: mpirun starts a daemon in each pod, and may do so from one pod.
func LaunchCommands(pods int) int { return 2*pods + 16 }

// launch is all of it. A round of the tree is kept twice: as this pod and those below it bring
// it, and as it comes from above.
func launch(here, ranks, pods int) int64 {
	return LaunchPod + 4*LaunchBytes(ranks) + 2*int64(LaunchPlaces(here))*launchPlace + int64(LaunchCommands(pods))*launchCommand
}
