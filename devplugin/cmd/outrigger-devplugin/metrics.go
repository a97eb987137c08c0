package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outrigger-hpc/outrigger/api/connlimit"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/sriov"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("outrigger_devplugin_"+name, help, labels, nil)
}

var (
	healthyDesc       = desc("device_healthy", "1 when the device can be given to a pod now.", "resource", "device", "name", "numa")
	registeredDesc    = desc("registered", "1 while the kubelet knows the resource.", "resource")
	registrationsDesc = desc("registrations_total", "Registrations that the kubelet accepted.", "resource")
	allocationsDesc   = desc("allocations_total", "Containers that asked for devices, by outcome.", "resource", "outcome")
	scansDesc         = desc("scans_total", "Looks at the devices of the node.")
	sriovDesc         = desc("sriov_condition", "1 for the condition of a physical function of the configuration, 0 for the others.", "pf", "condition")
	vfsDesc           = desc("sriov_vfs", "Virtual functions of a physical function of the configuration.", "pf")
	grantsDesc        = desc("grants_total", "Requests of sidecars, and connections that were refused, by outcome.", "op", "outcome")
	grantOpenDesc     = desc("grant_connections", "Open connections on the grant socket.")
	warningsDesc      = desc("sysfs_warnings", "Places of sysfs that made no sense at the last look.")
)

// collector reads the agent's counters at each scrape.
type collector struct{ agent *agent }

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{healthyDesc, registeredDesc, registrationsDesc, allocationsDesc, scansDesc, warningsDesc, grantsDesc, grantOpenDesc, sriovDesc, vfsDesc} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for name, p := range c.agent.plugins {
		devices := c.agent.ledger.Devices(name)
		for i := range devices {
			d := &devices[i]
			gauge(healthyDesc, number(d.Healthy()), name, d.ID, d.Name, node(d.NUMA))
		}
		gauge(registeredDesc, number(p.Registered()), name)
		count(registrationsDesc, p.Registrations(), name)
		given, refused := p.Allocations()
		count(allocationsDesc, given, name, "given")
		count(allocationsDesc, refused, name, "refused")
	}
	if k := c.agent.sriov; k != nil {
		for _, condition := range k.Conditions() {
			for _, s := range sriov.States {
				gauge(sriovDesc, number(condition.State == s), condition.PF, string(s))
			}
			gauge(vfsDesc, float64(condition.VFs), condition.PF)
		}
	}
	if g := c.agent.grants; g != nil {
		for _, n := range g.agent.Counts() {
			count(grantsDesc, n.Granted, string(n.Op), "granted")
			count(grantsDesc, n.Refused, string(n.Op), "refused")
		}
		gauge(grantOpenDesc, float64(g.agent.Connections()))
	}
	count(scansDesc, c.agent.scans.Load())
	gauge(warningsDesc, float64(c.agent.warnings.Load()))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// late is how many intervals may pass without a scan before the agent reports itself as
// unhealthy: a read of sysfs can hang in a driver, and only a restart resolves that.
const late = 12

func (a *agent) alive() error {
	if age := time.Since(time.Unix(0, a.scanned.Load())); age > late*a.o.interval {
		return fmt.Errorf("the last look at the devices was %s ago", age.Round(time.Second))
	}
	return nil
}

func (a *agent) ready() error {
	for name, p := range a.plugins {
		if !p.Registered() {
			return fmt.Errorf("%s is not registered with the kubelet", name)
		}
	}
	return nil
}

func (a *agent) handler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector{a}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", answer(a.alive))
	mux.HandleFunc("GET /readyz", answer(a.ready))
	return mux
}

func answer(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // if the client has disconnected, the error does not matter
	}
}

// serveMetrics serves until the context ends. The address may be unix:PATH.
func serveMetrics(ctx context.Context, a *agent) error {
	network, address := "tcp", a.o.listen
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if err := connlimit.Serve(ctx, l, a.handler(), &scrapes); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}

// scrapes bounds the cost of untrusted clients. The kubelet's probe gets a connection
// slot even if others hold many, unless a process with the node's address, which the
// kubelet also has, opens more than Rate connections a second.
var scrapes = connlimit.Bounds{
	Slots: 32, Buffer: 32 << 10, Header: 8 << 10, Rate: 500, Gap: 20 * time.Millisecond,
	Request: 5 * time.Second, Answer: 10 * time.Second, Idle: time.Minute,
}
