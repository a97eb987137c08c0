package obs

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Buffers are the counts of one rank's buffers, on a link that chooses between copying data
// and gathering it from the application's memory (docs/reuse.md).
type Buffers struct {
	Rank uint32 `json:"rank"`
	link.BufferCounts
}

var (
	seenDesc        = desc("buffers_seen_total", "Buffers that were sent and are large enough to be registered.", "rank")
	frequentDesc    = desc("buffers_frequent", "Of the buffers in use, those that are registered and gathered from.", "rank")
	spentDesc       = desc("buffer_registrations_total", "Registrations made for buffers that were used again.", "rank")
	pinnedDesc      = desc("pinned_bytes", "Memory of a rank that is registered now.", "rank")
	bufferBytesDesc = desc("buffer_bytes_total", "Bytes sent from a rank's buffers, copied or gathered (not copied).", "rank", "how")
	stoppedDesc     = desc("buffers_stopped", "1 while no more buffers are counted, because too few are used again.", "rank")
)

func collectBuffers(ch chan<- prometheus.Metric, all []Buffers) {
	metric := func(d *prometheus.Desc, t prometheus.ValueType, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, float64(v), labels...)
	}
	for i := range all {
		b := &all[i]
		rank := strconv.FormatUint(uint64(b.Rank), 10)
		stopped := uint64(0)
		if b.Stopped {
			stopped = 1
		}
		metric(seenDesc, prometheus.CounterValue, b.Seen, rank)
		metric(frequentDesc, prometheus.GaugeValue, b.Frequent, rank)
		metric(spentDesc, prometheus.CounterValue, b.Registered, rank)
		metric(pinnedDesc, prometheus.GaugeValue, b.PinnedBytes, rank)
		metric(bufferBytesDesc, prometheus.CounterValue, b.CopiedBytes, rank, "copied")
		metric(bufferBytesDesc, prometheus.CounterValue, b.GatheredBytes, rank, "gathered")
		metric(stoppedDesc, prometheus.GaugeValue, stopped, rank)
	}
}
