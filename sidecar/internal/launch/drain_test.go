package launch

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// told runs a trial and cancels it when both of its ranks are ready.
func (r *trial) told() *Event {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	go func() {
		wait(r.t, "both ranks", func() bool { return strings.Count(r.out.String(), "ready") == 2 })
		cancel()
	}()
	return r.run(ctx)
}

// TestCheckpointHasItsTime: rank 4 ends with a code of its own as soon as the pod is told
// to end, and rank 5 writes for longer than the ranks of a failed pod may.
func TestCheckpointHasItsTime(t *testing.T) {
	r := prepare(t, 5, `write() { [ $OUTRIGGER_RANK = 5 ] && sleep 0.3 && echo written; exit 85; }
		trap write TERM; echo ready; while :; do sleep 0.01; done`)
	r.Grace, r.Drain = time.Millisecond, time.Hour
	r.Failed = func(rank, code int) { t.Errorf("the job fails by rank %d, with code %d", rank, code) }
	if e := r.told(); e == nil || e.Code != 85 || !e.Told || strings.Count(r.out.String(), "written") != 1 {
		t.Errorf("first failure %+v\n%s%s", e, r.out.String(), r.status.String())
	}
}

// TestEndOfAFailedJob checks that a pod that is told to end because the job has failed
// elsewhere has no more time than a pod with a failed rank.
func TestEndOfAFailedJob(t *testing.T) {
	r := prepare(t, 5, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	r.Grace, r.Drain = time.Millisecond, time.Hour
	r.JobFailed = func(context.Context) (bool, error) { return true, nil }
	if e := r.told(); e == nil || e.Signal != "SIGKILL" {
		t.Errorf("first failure %+v", e)
	}
}

// TestEndBeforeItsTime checks that ranks that end with code 0 because they are told to end
// have not completed their work.
func TestEndBeforeItsTime(t *testing.T) {
	r := prepare(t, 5, `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	read := r.withLog(filepath.Join(t.TempDir(), "log"))
	e := r.told()
	if e == nil || e.Code != exitTerminated || !e.Told || e.Text() != "ended with code 0 because of SIGTERM, before its time" {
		t.Errorf("first failure %+v", e)
	}
	if m := read(); len(m.Failures) != 1 || m.Failures[0].Reason != podlife.Terminated || m.Failures[0].Code != exitTerminated {
		t.Errorf("last words %+v", m)
	}
}
