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

// Metrics are the operator's own metrics, in addition to those that controller-runtime
// has for every controller.
type Metrics struct {
	jobs    client.Reader
	leads   <-chan struct{} // closed when this replica leads
	changes *prometheus.CounterVec
	start   prometheus.Histogram
	present *prometheus.Desc

	namespaces bool
}

// otherReason replaces reasons that are not known to the operator.
const otherReason = "Other"

// reasonLabel bounds the number of series: reasons also come from termination messages,
// whose text tenants choose.
func reasonLabel(reason string) string {
	if verdict.Known(reason) {
		return reason
	}
	return otherReason
}

// listTime bounds a list call to the cache, which only reads memory.
const listTime = 5 * time.Second

// NewMetrics registers the metrics. jobs is a cache of MPIJobs. leads is closed when
// this replica becomes the leader; other replicas have the same jobs in their caches,
// and a sum over replicas would count each job several times. namespaces adds a
// namespace label to the metrics of jobs, which adds series.
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

// changed counts a transition of a job to a state. The argument is has the new status.
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

// beginning returns the time from which a job that is now Running is counted as
// starting: its creation, or the end of its last suspension. first is false if the job
// ran before and has not been suspended since; such a job has been counted.
func beginning(was *v1alpha1.MPIJob, is *v1alpha1.MPIJobStatus) (began time.Time, first bool) {
	began = was.CreationTimestamp.Time
	if meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionSuspended) != nil && is.StartTime != nil {
		began = is.StartTime.Time
	}
	ran := meta.FindStatusCondition(was.Status.Conditions, v1alpha1.ConditionRunning)
	return began, ran == nil || !began.Before(ran.LastTransitionTime.Time)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) { out <- m.present }

// Collect counts the existing jobs by state, if this replica is the leader. It reads
// the cache's own objects without copies.
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
