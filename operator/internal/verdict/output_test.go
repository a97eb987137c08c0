package verdict

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestOwnLinesAreQuoted: the condition has the line that a client library or the
// launcher printed for the failed rank, and no output of the program or of other ranks.
func TestOwnLinesAreQuoted(t *testing.T) {
	for output, want := range map[string]string{
		"[2] works\n[2] 2026/11/27 17:58:52 outrigger: rank 2: alloc: not enough arena memory\n[3] outrigger: rank 3: the job has failed\n": "exited with code 3: alloc: not enough arena memory; its output:",
		"[2] # PingPong\n[2] outrigger-launch: it ran to its end without Outrigger\n":                                                       "exited with code 3: it ran to its end without Outrigger; its output:",
		"[2] outrigger: rank 4: its MPI took another transport\n":                                                                           "exited with code 3: rank 4: its MPI took another transport; its output:",
		"[2] panic: no such mesh\n[3] outrigger: rank 3: the job has failed\n":                                                              "exited with code 3; its output:",
		"[2] outrigger: " + strings.Repeat("x", 900):                                                                                        "exited with code 3: " + strings.Repeat("x", quoteMax-3) + "...; its output:",
	} {
		s := begun(t)
		m := podlife.Message{Kind: podlife.KindRanks, Pod: 1, Output: output, Failures: []podlife.Failure{{Rank: 2, Code: 3, Reason: podlife.RankExited, Text: "exited with code 3", Time: at(10)}}}
		s.exit(1, 3, at(10), m.Failures...)
		s.o.Pods[1].Status.ContainerStatuses[0].State.Terminated.Message = string(m.Encode())
		s.o.Now = at(14)
		s.next(Stop, v1alpha1.ConditionFailed)
		if f := s.job.Status.FirstFailure; !strings.HasPrefix(f.Message, want) {
			t.Errorf("%q: %q, want %q", output, f.Message, want)
		}
		conforms(t, &s.job.Status)
	}
}
