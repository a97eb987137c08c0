package podlife

import "strings"

// Reason is why something failed, as one word; it becomes the reason of a
// condition in the job's status.
type Reason string

// Reasons that launchers give.
const (
	RankExited  Reason = "RankExited"  // with a code that is not 0
	RankKilled  Reason = "RankKilled"  // by a signal
	CannotStart Reason = "CannotStart" // its program does not exist, or may not be executed
	NoSidecar   Reason = "NoSidecar"   // its sidecar was not there in time
	Terminated  Reason = "Terminated"  // the pod was told to end before the rank had
)

// Reasons that sidecars give.
const (
	RankVanished     Reason = "RankVanished"     // its process ended without closing its session
	MemoryShort      Reason = "MemoryShort"      // there was not the memory for a rank's arena
	RankExpelled     Reason = "RankExpelled"     // it broke the shared-memory contract
	JobAborted       Reason = "JobAborted"       // a rank called abort
	RanksDisagree    Reason = "RanksDisagree"    // ranks called different collectives, or with other parameters
	SidecarLost      Reason = "SidecarLost"      // a pod's sidecar ended or does not answer
	SidecarFailed    Reason = "SidecarFailed"    // the sidecar could not start, or could not go on
	SidecarRestarted Reason = "SidecarRestarted" // a second start in the same pod, which cannot join the job again
	TransportMissing Reason = "TransportMissing" // the job requires a transport that this pod has not
	Undelivered      Reason = "Undelivered"      // peers were not reached before the sidecar had to end
	JobFailed        Reason = "JobFailed"        // anything else that ended the job
)

// How the text of a failure begins that sidecars tell each other. Text is what
// travels between them (PROTOCOL §7).
const (
	TextVanished = "its process ended without closing its session"
	// TextLastError follows TextVanished, and goes on with the last call of the rank that
	// failed, as its client has told.
	TextLastError = "; its last error: "
	// TextAbsent is of a rank that had said goodbye, and goes on with the rank that waited
	// for it, TextAbsentFrom, and the collective.
	TextAbsent     = "closed its session while rank "
	TextAbsentFrom = " waited for it in "
	// TextBadly is of a rank that had said goodbye, or had not attached: its launcher tells.
	TextBadly = "its process ended badly"
	// TextIdle is of a rank whose launcher has gone, when others came to wait for it.
	TextIdle = "its process ended without having called MPI_Init"
	// TextOver is of a rank that has run fewer MPI programs than others.
	TextOver     = "its process ended, and other ranks run another MPI program"
	TextExpelled = "expelled: "
	TextAborted  = "called abort"
	// TextRefused goes on with why a rank's MPI cannot use Outrigger.
	TextRefused = "refused: "
	// TextDisagrees goes on with what the other rank does.
	TextDisagrees = "disagrees with "
	TextLost      = "sidecar of pod "
	// TextEnded goes on with why who started the job has ended it.
	TextEnded = "ended by its launcher: "
	// TextCut ends a text that was too long to travel between sidecars.
	TextCut = "…"
)

// TextNoRDMA is the message of a sidecar's log whose job prefers RDMA and has none; outrigger run
// shows it.
const TextNoRDMA = "data between pods does not go by RDMA"

// adviceVanished follows TextVanished when the process did not end badly, as far
// as anybody knows.
const adviceVanished = ": call Close (MPI_Finalize) before the program ends, or becomes another one"

// adviceAbsent follows TextAbsent.
const adviceAbsent = ": all ranks of a communicator call its collectives, in one order, before they close"

// ReasonOf finds the reason of a failure that sidecars agreed on.
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
