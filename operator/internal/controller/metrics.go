package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// Metrics of the operator, beside those that controller-runtime has of every
// controller.
type Metrics struct {
	jobs    client.Reader
	leads   <-chan struct{} // closed when this replica leads
	changes *prometheus.CounterVec
	start   prometheus.Histogram
	present *prometheus.Desc

	namespaces bool
}

// otherReason stands for the reasons that pods make up.
const otherReason = "Other"

// reasonLabel bounds the series: reasons come from termination messages too,
// which tenants write as they like.
func reasonLabel(reason string) string {
	if verdict.Known(reason) {
		return reason
	}
	return otherReason
}

// listTime bounds a look at the cache; it is memory.
const listTime = 5 * time.Second

// NewMetrics registers the metrics. Jobs is a cache of MPIJobs. Leads is closed when this
// replica leads: those that do not have the same jobs in their caches, and a sum over
// replicas would count each job again. Namespaces adds the jobs' namespace to what is
// counted by job, which costs series.
func NewMetrics(r prometheus.Registerer, jobs client.Reader, leads <-chan struct{}, namespaces bool) (*Metrics, error) {
	by := []string{"state", "reason"}
	if namespaces {
		by = append(by, "namespace")
	}
	m := &Metrics{
		jobs: jobs, leads: leads, namespaces: namespaces,
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_mpijob_changes_total", Help: "Changes of MPIJobs to a state, with the reason.",
		}, by),
		start: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outrigger_mpijob_start_seconds", Help: "From the creation of an MPIJob, or the end of its last suspension, to the start of its last rank, for jobs that were never restarted.",
			Buckets: prometheus.ExponentialBuckets(0.5, 2, 14),
		}),
		present: prometheus.NewDesc("outrigger_mpijobs", "MPIJobs by state.", []string{"state"}, nil),
	}
	for _, c := range []prometheus.Collector{m.changes, m.start, m} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// changed counts a job that has come to a state, with which it has the status is.
func (m *Metrics) changed(j *v1alpha1.MPIJob, is *v1alpha1.MPIJobStatus, state, reason string, at time.Time) {
	if m == nil {
		return
	}
	labels := []string{state, reasonLabel(reason)}
	if m.namespaces {
		labels = append(labels, j.Namespace)
	}
	m.changes.WithLabelValues(labels...).Inc()
	if state == v1alpha1.ConditionRunning && verdict.AttemptOf(j) == 0 {
		if began, first := beginning(j, is); first {
			m.start.Observe(at.Sub(began).Seconds())
		}
	}
}

// beginning is since when the ranks of a job, which has come to Running, were to be
// started: since its creation, or since it was not suspended any more, when its Job
// began again. A job that ran before and was not suspended since has counted.
func beginning(was *v1alpha1.MPIJob, is *v1alpha1.MPIJobStatus) (began time.Time, first bool) {
	began = was.CreationTimestamp.Time
	if meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionSuspended) != nil && is.StartTime != nil {
		began = is.StartTime.Time
	}
	ran := meta.FindStatusCondition(was.Status.Conditions, v1alpha1.ConditionRunning)
	return began, ran == nil || !began.Before(ran.LastTransitionTime.Time)
}

// Describe is a part of prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) { out <- m.present }

// Collect counts the jobs that are there, in the replica that leads. It reads the cache's
// own objects.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	select {
	case <-m.leads:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTime)
	defer cancel()
	all := new(v1alpha1.MPIJobList)
	if err := m.jobs.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(m.present, err)
		return
	}
	states := map[string]int{}
	for i := range all.Items {
		if c := trueCondition(&all.Items[i].Status); c != nil {
			states[c.Type]++
		}
	}
	for state, n := range states {
		out <- prometheus.MustNewConstMetric(m.present, prometheus.GaugeValue, float64(n), state)
	}
}
