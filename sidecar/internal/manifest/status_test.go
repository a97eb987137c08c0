package manifest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

func TestStatus(t *testing.T) {
	f, err := Read([]byte(readTable(t).Job))
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(&Machine{Node: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	p.RestartLimit = 1
	rank, code := int32(2), int32(137)
	failure := &v1alpha1.Failure{Rank: &rank, Pod: "good-1-1", Node: "laptop", ExitCode: &code, Reason: "RankKilled", Message: "was killed by SIGKILL"}
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const times = "completionTime: \"2026-01-02T03:04:15Z\"\nconditions:\n- lastTransitionTime: \"2026-01-02T03:04:15Z\"\n"
	for what, c := range map[string]struct {
		end  End
		want string
	}{
		"complete": {
			End{Complete: true, Succeeded: []bool{true, true}, Transports: []string{"tcp"}},
			times + `  message: all 4 ranks ended with exit code 0
  reason: RanksSucceeded
  status: "True"
  type: Complete
ranks:
  failed: 0
  pending: 0
  running: 0
  succeeded: 4
startTime: "2026-01-02T03:04:05Z"
transports:
- tcp
`,
		},
		"failed after a restart": {
			End{Restarts: 1, Succeeded: []bool{true, false}, Failure: failure},
			times + `  message: 'rank 2: was killed by SIGKILL (pod good-1-1, node laptop) (after 1 restarts,
    the limit)'
  reason: RankKilled
  status: "True"
  type: Failed
firstFailure:
  exitCode: 137
  message: was killed by SIGKILL
  node: laptop
  pod: good-1-1
  rank: 2
  reason: RankKilled
ranks:
  failed: 2
  pending: 0
  running: 0
  succeeded: 2
restarts: 1
startTime: "2026-01-02T03:04:05Z"
`,
		},
	} {
		c.end.Begun, c.end.Ended = begun, begun.Add(10*time.Second)
		text, err := yaml.Marshal(p.Status(&c.end))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, string(text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// TestRestartable checks that restarts are decided as by the operator.
func TestRestartable(t *testing.T) {
	p := Plan{RestartLimit: 1}
	for reason, want := range map[string]bool{"RankExited": true, "SidecarLost": true, "DeadlineExceeded": false, "TransportMissing": false} {
		f := &v1alpha1.Failure{Reason: reason}
		if p.Restartable(0, f) != want || p.Restartable(1, f) {
			t.Errorf("%s: %v, and after the limit %v", reason, p.Restartable(0, f), p.Restartable(1, f))
		}
	}
}
