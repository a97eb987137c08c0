package controller

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestStartOfAResumedJob: the start time of a job does not include its suspension, and
// a job that runs again without a suspension is counted once.
func TestStartOfAResumedJob(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) metav1.Time { return metav1.NewTime(noon.Add(time.Duration(s) * time.Second)) }
	ended := func(kind string, when int) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, LastTransitionTime: at(when)}
	}
	for name, c := range map[string]struct {
		was   []metav1.Condition
		start int
		count uint64
		sum   float64
	}{
		"never suspended":         {nil, 2, 1, 3610},
		"resumed":                 {[]metav1.Condition{ended(v1alpha1.ConditionSuspended, 3600)}, 3600, 1, 10},
		"ran, suspended, resumed": {[]metav1.Condition{ended(v1alpha1.ConditionRunning, 60), ended(v1alpha1.ConditionSuspended, 3600)}, 3600, 1, 10},
		"ran before":              {[]metav1.Condition{ended(v1alpha1.ConditionRunning, 60)}, 2, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := NewMetrics(prometheus.NewRegistry(), nil, leading(), false)
			if err != nil {
				t.Fatal(err)
			}
			job := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(0)}}
			job.Status.Conditions = c.was
			start := at(c.start)
			is := &v1alpha1.MPIJobStatus{Conditions: c.was, StartTime: &start}
			m.changed(job, is, v1alpha1.ConditionRunning, "Started", at(3610).Time)
			var got dto.Metric
			if err := m.start.Write(&got); err != nil {
				t.Fatal(err)
			}
			if h := got.GetHistogram(); h.GetSampleCount() != c.count || h.GetSampleSum() != c.sum {
				t.Errorf("%d starts of %v s, want %d of %v s", h.GetSampleCount(), h.GetSampleSum(), c.count, c.sum)
			}
		})
	}
}

// leading returns the channel of a replica that is the leader.
func leading() <-chan struct{} {
	leads := make(chan struct{})
	close(leads)
	return leads
}

// TestOneReplicaCountsJobs: only the leader reports jobs by state.
func TestOneReplicaCountsJobs(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	_, api, look := beginningJob(t, &now)
	look()
	for _, leads := range []bool{true, false} {
		elected, want := leading(), 1
		if !leads {
			elected, want = make(chan struct{}), 0
		}
		registry := prometheus.NewRegistry()
		if _, err := NewMetrics(registry, api, elected, false); err != nil {
			t.Fatal(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		jobs := 0
		for _, f := range families {
			if f.GetName() == "outrigger_mpijobs" {
				jobs += len(f.GetMetric())
			}
		}
		if jobs != want {
			t.Errorf("leads %v: %d series of jobs, want %d", leads, jobs, want)
		}
	}
}
