package podlife

import "strings"

// Reason is why something failed, as one word; it becomes the reason of a
// condition in the job's status.
type Reason string

// Reasons that launchers give.
const (
	// RankExited: a rank's program ended with an exit code other than 0.
	//
	// Remedy: read its output: `kubectl logs POD -c CONTAINER`.
	RankExited Reason = "RankExited"
	// RankKilled: a signal ended a rank, and no memory limit is known to be the cause.
	//
	// Remedy: 139 is a crash of the program (SIGSEGV); 137 without `OutOfMemory` is a `kill`
	// by a user or a program.
	RankKilled Reason = "RankKilled"
	// CannotStart: the program does not exist in the image (127), may not be executed (126),
	// or is linked to an MPI that `mpi` does not name; or `stdinFile` is missing; or
	// `outrigger-pmix`, which Open MPI needs, does not start in the image.
	// +claim of conditions: sidecar/cmd/outrigger TestStdinFile
	//
	// Remedy: correct `command`: it is a list, whose first word is a path in the image, and
	// no shell splits a line. The message has the last line of `outrigger-pmix`; docs/mpi.md
	// (An image) lists the libraries that an image needs.
	CannotStart Reason = "CannotStart"
	// NoSidecar: the launcher did not find the sidecar's socket in time.
	//
	// Remedy: read the sidecar's log: `kubectl logs POD -c outrigger`.
	NoSidecar Reason = "NoSidecar"
	// Terminated: the container or the pod was told to end before its ranks had, and nothing
	// else is known: a liveness probe failed (which the message supposes if neither the job
	// nor the pod was ended), its `lifecycle.postStart` hook failed (which the message then
	// says), or the pod was deleted.
	// +claim of conditions: operator/internal/verdict TestContainerToldToEnd
	// +claim of conditions: operator/internal/controller TestHookIsQuoted
	//
	// Remedy: `kubectl get events`; a longer probe, or none; the program of the hook has to
	// be in the image.
	Terminated Reason = "Terminated"
)

// Reasons that sidecars give.
const (
	// RankVanished: a rank's process ended without `Close`, and its launcher reports nothing
	// more.
	//
	// Remedy: call `Close`, also before `os.Exit`.
	RankVanished Reason = "RankVanished"
	// MemoryShort: there was not enough memory for a rank's arena.
	//
	// Remedy: see the memory of the sidecar, below.
	MemoryShort Reason = "MemoryShort"
	// RankExpelled: a rank wrote into the memory that it shares with the sidecar what no
	// client writes.
	//
	// Remedy: the image has a library of another release, or the program overwrites memory.
	RankExpelled Reason = "RankExpelled"
	// JobAborted: a rank called abort; the message has its words.
	//
	// Remedy: what the message says.
	JobAborted Reason = "JobAborted"
	// RanksDisagree: ranks of a communicator called different collectives, or the same with
	// another root, size, type or operation; the message names both. It is a failure, or a
	// reason of `Running` if no message shows it.
	//
	// Remedy: correct the program.
	RanksDisagree Reason = "RanksDisagree"
	// SidecarLost: a pod's sidecar ended, or was silent for `deadAfterMilliseconds`. A node
	// that was lost is seen first in this way.
	//
	// Remedy: `kubectl get nodes`; the log of the sidecar; a node that is far too busy;
	// raise `deadAfterMilliseconds`.
	SidecarLost Reason = "SidecarLost"
	// SidecarFailed: a sidecar could not start, or could not continue.
	//
	// Remedy: read the message and the sidecar's log.
	SidecarFailed Reason = "SidecarFailed"
	// SidecarRestarted: a sidecar was started again after it had ended: the job's state was
	// lost with the first one.
	//
	// Remedy: `kubectl describe pod` shows why it ended.
	SidecarRestarted Reason = "SidecarRestarted"
	// TransportMissing: the job requires a transport that a pod does not have. The job is
	// not restarted.
	//
	// Remedy: `devices`, nodes that have cards, or `policy: Preferred`.
	TransportMissing Reason = "TransportMissing"
	// Undelivered: a sidecar was told to end before its peers had received everything.
	//
	// Remedy: find the peers that never started, or hang.
	Undelivered Reason = "Undelivered"
	// JobFailed: the sidecars agreed on another failure.
	//
	// Remedy: read the message.
	JobFailed Reason = "JobFailed"
)

// Beginnings of the texts of failures that sidecars send to each other (PROTOCOL §7).
const (
	TextVanished = "its process ended without closing its session"
	// TextLastError follows TextVanished. The text continues with the last failed call of the
	// rank, as its client has recorded it.
	TextLastError = "; its last error: "
	// TextAbsent is for a rank that had closed its session. The text continues with the rank
	// that waited for it, TextAbsentFrom, and the collective.
	TextAbsent     = "closed its session while rank "
	TextAbsentFrom = " waited for it in "
	// TextBadly is for a rank that had closed its session, or had not attached; its launcher
	// reports the failure.
	TextBadly = "its process ended badly"
	// TextIdle is for a rank whose launcher has gone, if other ranks wait for the rank.
	TextIdle = "its process ended without having called MPI_Init"
	// TextOver is for a rank that has run fewer MPI programs than others.
	TextOver     = "its process ended, and other ranks run another MPI program"
	TextExpelled = "expelled: "
	TextAborted  = "called abort"
	// The text continues after TextRefused with the reason why a rank's MPI cannot use
	// Outrigger.
	TextRefused = "refused: "
	// The text continues after TextDisagrees with the collective of the other rank.
	TextDisagrees = "disagrees with "
	TextLost      = "sidecar of pod "
	// The text continues after TextEnded with the reason why the program that started the job
	// has ended it.
	TextEnded = "ended by its launcher: "
	// TextCut ends a text that was too long to travel between sidecars.
	TextCut = "…"
)

// TextNoRDMA is the log message of a sidecar whose job prefers RDMA if no RDMA device can be
// used; outrigger run shows it.
const TextNoRDMA = "data between pods does not go by RDMA"

// adviceVanished follows TextVanished if no failure of the process is known.
const adviceVanished = ": call Close (MPI_Finalize) before the program ends, or becomes another one"

// adviceAbsent follows TextAbsent.
const adviceAbsent = ": all ranks of a communicator call its collectives, in one order, before they close"

// ReasonOf returns the reason of a failure that sidecars agreed on.
func ReasonOf(text string) Reason {
	for _, c := range []struct {
		begins string
		reason Reason
	}{
		{TextVanished, RankVanished},
		{TextBadly, RankVanished},
		{TextExpelled, RankExpelled},
		{TextAborted, JobAborted},
		{TextDisagrees, RanksDisagree},
		{TextAbsent, RanksDisagree},
		{TextLost, SidecarLost},
	} {
		if strings.HasPrefix(text, c.begins) {
			return c.reason
		}
	}
	return JobFailed
}
