package controller

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// TestStatesAreLoggedOnce: each change of a job's state is logged once, however often
// the job is reconciled, and a successful job has no other log lines.
func TestStatesAreLoggedOnce(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r, api, _ := beginningJob(t, &now)
	var out bytes.Buffer
	ctx := log.IntoContext(t.Context(), logr.FromSlogHandler(slog.NewTextHandler(&out, nil)))
	look := func() {
		t.Helper()
		for range 5 {
			if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "hpc", Name: "cg"}}); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second)
		}
	}
	look()
	batch := read(t, api, "cg-0", new(batchv1.Job))
	batch.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	if err := api.Status().Update(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	look()
	for _, state := range []string{"Pending", "Complete"} {
		if n := strings.Count(out.String(), "state="+state); n != 1 {
			t.Errorf("%d lines say that the job is %s", n, state)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines of a good run:\n%s", n, &out)
	}
}
