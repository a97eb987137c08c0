package obs

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// Snapshot has the engine's counters at one moment.
type Snapshot struct {
	Core                       core.Stats
	Busy, Idle, Yields, Sleeps uint64
	BytesIn, BytesOut          uint64
	RefusedConnections         uint64
	Direct                     int         // number of peers reached by RDMA, if that is the transport
	Paths                      []link.Path // nil: the link between pods has one
	Lent                       link.LentCounts
	Copies                     copyeng.Stats
	Buffers                    []Buffers
	Times                      []trace.Summary
}

// collector converts snapshots to metrics when a client scrapes: the engine spends no time
// in between.
type collector struct {
	sources *Sources
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("outrigger_"+name, help, labels, nil)
}

var (
	messagesDesc   = desc("messages_total", "Messages by protocol, counted where the data is moved.", "protocol")
	bytesDesc      = desc("message_bytes_total", "Payload bytes by protocol.", "protocol")
	collDesc       = desc("collectives_total", "Collectives that ranks have begun, by algorithm; none: of one rank.", "collective", "algorithm")
	framesDesc     = desc("frames_total", "Frames of the wire protocol by direction.", "direction")
	linkBytesDesc  = desc("link_bytes_total", "Bytes on the link between pods by direction.", "direction")
	pathDropDesc   = desc("link_path_dropped_total", "Packets that the kernel dropped on this side, most often for want of room, by path.", "path")
	pathBytesDesc  = desc("link_path_bytes_total", "Bytes between pods by path, if the link has several for a peer.", "path", "direction")
	matchesDesc    = desc("matches_total", "Messages that found a posted receive (expected), or a receive that found them (unexpected).", "kind")
	unexpectedDesc = desc("unexpected_bytes", "Memory that unexpected messages use now.")
	peakDesc       = desc("unexpected_bytes_peak", "Largest memory that unexpected messages have used.")
	openDesc       = desc("requests_open", "Requests in progress.", "kind")
	stallsDesc     = desc("credit_stalls_total", "Eager messages that went by rendezvous because the peer had granted no credit.")
	breaksDesc     = desc("connection_breaks_total", "Connections to peers that broke.")
	reconnectsDesc = desc("reconnects_total", "Connections to peers that were made again and resumed.")
	refusedDesc    = desc("refused_connections_total", "Connections that were refused during wire-up.")
	transportDesc  = desc("transport_info", "1 for each transport in use: local (within the pod), node (memory of the machine), tcp, ether (UDP or raw Ethernet, and TCP), rdma.", "transport")
	turnsDesc      = desc("engine_turns_total", "Turns of the engine.", "kind")
	lentReadsDesc  = desc("exposed_reads_total", "Remote reads from and into memory that ranks have registered themselves.")
	lentBytesDesc  = desc("exposed_bytes_total", "Bytes that such reads have moved.")
	lentPairsDesc  = desc("exposed_queue_pairs_total", "Queue pairs for them that were made, and that failed.", "event")
	copiedDesc     = desc("copied_bytes_total", "Bytes copied for remote operations within the pod and the machine, by engine: cpu is the thread of the sidecar's engine.", "engine")
	pendingDesc    = desc("copies_pending", "Pieces of messages that are being copied outside of the engine's thread.")
	fallbacksDesc  = desc("copy_fallbacks_total", "Pieces whose copy failed outside of the engine's thread, and that were copied by it.")
	threadCPUDesc  = desc("thread_cpu_seconds_total", "CPU time of the thread of the sidecar's engine, and of the threads that copy for it (as of their last sleep).", "thread")
	sizesDesc      = desc("message_size_bytes", "Sizes of the messages sent by the ranks of this sidecar.")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		messagesDesc, bytesDesc, collDesc, framesDesc, linkBytesDesc, pathBytesDesc, matchesDesc, unexpectedDesc, peakDesc,
		seenDesc, frequentDesc, spentDesc, pinnedDesc, bufferBytesDesc, stoppedDesc,
		openDesc, stallsDesc, breaksDesc, reconnectsDesc, refusedDesc, transportDesc, turnsDesc, sizesDesc,
		lentReadsDesc, lentBytesDesc, lentPairsDesc, copiedDesc, pendingDesc, fallbacksDesc, threadCPUDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	p, err := c.sources.Snapshot()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(messagesDesc, err)
		return
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, t := range Protocols(&p.Core) {
		name := strings.ReplaceAll(t.Name, " ", "_") // without spaces, labels need no quoting
		counter(messagesDesc, t.Messages, name)
		counter(bytesDesc, t.Bytes, name)
	}
	for _, x := range Collectives(&p.Core) {
		counter(collDesc, x.Calls, x.Collective, x.Algorithm)
	}
	counter(framesDesc, p.Core.FramesIn, "in")
	counter(framesDesc, p.Core.FramesOut, "out")
	counter(linkBytesDesc, p.BytesIn, "in")
	counter(linkBytesDesc, p.BytesOut, "out")
	for _, x := range p.Paths {
		counter(pathBytesDesc, x.In, x.Name, "in")
		counter(pathBytesDesc, x.Out, x.Name, "out")
		counter(pathDropDesc, x.Dropped, x.Name)
	}
	counter(matchesDesc, p.Core.Expected, "expected")
	counter(matchesDesc, p.Core.Unexpected, "unexpected")
	gauge(unexpectedDesc, float64(p.Core.UnexpectedBytes))
	gauge(peakDesc, float64(p.Core.UnexpectedPeak))
	gauge(openDesc, float64(p.Core.Sends), "send")
	gauge(openDesc, float64(p.Core.Receives), "receive")
	gauge(openDesc, float64(p.Core.Parked), "unexpected")
	counter(stallsDesc, p.Core.CreditStalls)
	counter(breaksDesc, p.Core.Breaks)
	counter(reconnectsDesc, p.Core.Reconnects)
	counter(refusedDesc, p.RefusedConnections)
	for _, t := range Transports(c.sources, &p) {
		gauge(transportDesc, 1, t.Transport)
	}
	counter(turnsDesc, p.Busy, "busy")
	counter(turnsDesc, p.Idle, "idle")
	counter(turnsDesc, p.Yields, "yield")
	counter(turnsDesc, p.Sleeps, "sleep")
	counter(lentReadsDesc, p.Lent.Reads)
	counter(lentBytesDesc, p.Lent.Bytes)
	counter(lentPairsDesc, p.Lent.Pairs, "made")
	counter(lentPairsDesc, p.Lent.Faults, "failed")
	collectCopies(ch, &p.Copies)
	ch <- sizes(&p.Core)
	collectBuffers(ch, p.Buffers)
}

// collectCopies sends the counts of copies by engine. An engine that is not used has none.
func collectCopies(ch chan<- prometheus.Metric, c *copyeng.Stats) {
	metric := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	seconds := func(ns int64) float64 { return time.Duration(ns).Seconds() }
	metric(copiedDesc, prometheus.CounterValue, float64(c.Inline), "cpu")
	metric(threadCPUDesc, prometheus.CounterValue, seconds(c.EngineNS), "engine")
	if c.Kind != "" {
		metric(copiedDesc, prometheus.CounterValue, float64(c.Offloaded), c.Kind)
		metric(threadCPUDesc, prometheus.CounterValue, seconds(c.ChannelNS), c.Kind)
	}
	metric(pendingDesc, prometheus.GaugeValue, float64(c.Pending))
	metric(fallbacksDesc, prometheus.CounterValue, float64(c.Fallbacks))
}

// sizes returns the histogram of message sizes; bucket k holds sizes below 2^k.
func sizes(s *core.Stats) prometheus.Metric {
	buckets := make(map[float64]uint64, len(s.Sizes))
	total := uint64(0)
	for bits, n := range s.Sizes {
		total += n
		buckets[float64(uint64(1)<<bits-1)] = total
	}
	return prometheus.MustNewConstHistogram(sizesDesc, total, float64(s.Local.Bytes+s.Remote.Bytes), buckets)
}

// Protocol is the traffic of one protocol.
type Protocol struct {
	Name            string
	Messages, Bytes uint64
}

// Protocols lists the traffic by protocol.
func Protocols(s *core.Stats) []Protocol {
	row := func(name string, t core.Traffic) Protocol { return Protocol{name, t.Messages, t.Bytes} }
	return []Protocol{
		row("eager", s.Eager), row("rendezvous get", s.Get), row("rendezvous put", s.Put), row("rendezvous stream", s.Stream),
		row("one-sided", s.OneSided), row("remote put", s.RemotePut), row("remote get", s.RemoteGet), row("collective", s.Collective),
	}
}

// Collective counts the calls of a collective that one algorithm has served. A rank's call counts
// once.
type Collective struct {
	Collective string `json:"collective"`
	Algorithm  string `json:"algorithm"` // "none" of communicators of one rank
	Calls      uint64 `json:"calls"`
}

// Collectives lists the collectives that ranks have begun, by algorithm.
func Collectives(s *core.Stats) (list []Collective) {
	for kind, by := range s.Algorithms {
		for algorithm, n := range by {
			if n == 0 {
				continue
			}
			name := "none"
			if a := coll.Algorithm(algorithm); a != coll.Auto {
				name = a.String()
			}
			list = append(list, Collective{coll.Kind(kind).String(), name, n})
		}
	}
	return list
}
