package controller

import (
	"errors"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// TestTroubleIsTriedMoreRarely: the time between tries of an action doubles up to a
// bound. It starts again after a success, and for another action or a changed job.
func TestTroubleIsTriedMoreRarely(t *testing.T) {
	var r recent
	now := time.Unix(1000, 0)
	job := new(v1alpha1.MPIJob)
	job.Name, job.UID, job.Generation = "cg", "1", 1
	cause := apierrors.NewGenericServerResponse(http.StatusInternalServerError, "PATCH", v1alpha1.Kind.GroupVersion().WithResource("jobs").GroupResource(), "cg-0", "down", 0, true)
	left := func(action verdict.Action) time.Duration {
		left, _ := r.trouble(job, action, now)
		return left
	}
	r.failed(job, verdict.Apply, errors.New("connection refused"), 0, now)
	if d := left(verdict.Apply); d != 0 {
		t.Errorf("an error that is no answer holds the job up for %v", d)
	}
	for want := troubleMin; want < 2*troubleMax; want *= 2 {
		r.failed(job, verdict.Apply, cause, 0, now)
		if d := left(verdict.Apply); d != min(want, troubleMax) {
			t.Fatalf("%v to the next try, want %v", d, min(want, troubleMax))
		}
		if _, got := r.trouble(job, verdict.Apply, now); !errors.Is(got, cause) {
			t.Fatalf("the cause is %v", got)
		}
	}
	if d := left(verdict.Stop); d != 0 {
		t.Errorf("the end of the job is held up for %v by a change that failed", d)
	}
	now = now.Add(-time.Hour)
	if d := left(verdict.Apply); d > troubleMax {
		t.Errorf("a clock that was set back holds the job up for %v", d)
	}
	now = now.Add(2 * time.Hour)
	if d := left(verdict.Apply); d > 0 {
		t.Errorf("%v are left when the time is over", d)
	}
	now = now.Add(-time.Hour)
	job.Generation++
	if d := left(verdict.Apply); d != 0 {
		t.Errorf("a job that was changed is held up for %v", d)
	}
	r.failed(job, verdict.Apply, cause, 0, now)
	r.went(job, verdict.Apply)
	if d := left(verdict.Apply); d != 0 {
		t.Errorf("what went well is held up for %v", d)
	}
	r.failed(job, verdict.Apply, cause, webhookTime, now)
	if d := left(verdict.Apply); d != webhookTime {
		t.Errorf("after an answer that took %v the next try is in %v", webhookTime, d)
	}
}

// TestTroubleIsOfItsAction: while the end of a job is refused, successful actions of
// the job do not shorten the time to the next try. The end of the next attempt is tried
// independently.
func TestTroubleIsOfItsAction(t *testing.T) {
	var r recent
	now := time.Unix(1000, 0)
	job := new(v1alpha1.MPIJob)
	job.Name, job.UID, job.Generation = "cg", "1", 1
	cause := apierrors.NewInternalError(errors.New("failed calling webhook"))
	for _, other := range []verdict.Action{verdict.Wait, verdict.Apply, verdict.Remove, statusWrite} {
		r.failed(job, verdict.Stop, cause, 0, now)
		before, _ := r.trouble(job, verdict.Stop, now)
		r.failed(job, other, cause, 0, now)
		r.went(job, other)
		if after, _ := r.trouble(job, verdict.Stop, now); after != before || after == 0 {
			t.Errorf("after action %d went well the end is tried in %v, want %v", other, after, before)
		}
	}
	job.Status.Restarts = new(int32(1))
	if left, _ := r.trouble(job, verdict.Stop, now); left != 0 {
		t.Errorf("the end of the next attempt is held up for %v", left)
	}
	job.Status.Restarts = nil
	r.forget(client.ObjectKeyFromObject(job))
	if len(r.jobs) > 0 {
		t.Errorf("%v is kept of a job that is gone", r.jobs)
	}
}
