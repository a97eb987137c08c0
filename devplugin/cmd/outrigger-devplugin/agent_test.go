package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/connlimit/hostile"
	"github.com/outrigger-hpc/outrigger/api/grant"
	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the answers in testdata again")

// command runs the program and returns its output.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := rootCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestInventoryTable(t *testing.T) {
	n := sysfstest.NewNode(t)
	n.SoftRoCE()
	n.Port(n.InfiniBand, "2: INIT", "5: LinkUp")
	n.Bind(n.Channels[0], "ioatdma")
	n.Set("sys/class/infiniband/mlx5_0/ports/x/state", "")
	got, err := command(t, "inventory", "--root", n.Root)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "inventory.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestInventoryJSON(t *testing.T) {
	n := sysfstest.NewNode(t)
	config := write(t, "pools: [{kind: hca, resource: example.com/vf, select: {functions: [vf]}}]")
	out, err := command(t, "inventory", "--json", "--root", n.Root, "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Devices []struct {
			Name, Resource string
			NUMA           int
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Devices) != 16 || got.Devices[1].Name != "mlx5_2" || got.Devices[1].Resource != "example.com/vf" || got.Devices[0].Resource != "" {
		t.Errorf("%+v", got.Devices)
	}
}

func TestInventoryOfNothing(t *testing.T) {
	out, err := command(t, "inventory", "--root", t.TempDir())
	if err != nil || !strings.Contains(out, "are the drivers") {
		t.Errorf("%q, %v", out, err)
	}
}

// TestSRIOVPlan: the command prints the plan, and what prevents a change, and changes nothing.
// No kubelet runs in this test, and the interface is not in the test's network namespace.
func TestSRIOVPlan(t *testing.T) {
	n := sysfstest.NewNode(t)
	for config, want := range map[string]string{
		"":                              "no sriov section",
		"sriov: [{pf: ens9, count: 4}]": "ens9: cannot be looked at: ens9: no such physical function",
		"sriov: [{pf: \"0000:3b:00.0\", count: 2}]":                                   "0000:3b:00.0 (0000:3b:00.0): 2 of at most 8 virtual functions, 2 wanted\n  nothing to do",
		"sriov: [{pf: \"0000:3b:00.0\", count: 4, resize: always}]":                   "would: make 4 virtual functions",
		"sriov: [{pf: \"0000:3b:00.0\", count: 4, resize: whenFree}]":                 "held:  there are 2 virtual functions, 4 are wanted; vf 0 (0000:3b:00.2) may be allocated",
		"sriov: [{pf: \"0000:3b:00.0\", count: 2, trust: enabled}]":                   "held:  no network interface",
		"sriov: [{pf: \"0000:d8:00.0\", count: 2}, {pf: \"0000:3b:00.0\", count: 2}]": "nothing to do",
	} {
		file := write(t, "pools: [{kind: hca}]\n"+config)
		out, err := command(t, "sriov", "plan", "--root", n.Root, "--config", file, "--pod-resources", filepath.Join(t.TempDir(), "none"))
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s, want %q", config, err, out, want)
		}
	}
}

// TestAgentSRIOV: the agent makes the functions while it runs, and its metrics report the
// condition of each card. A plain file takes the place of the kernel's: it accepts the number
// and makes no functions, like a card that fails.
func TestAgentSRIOV(t *testing.T) {
	n := sysfstest.NewNode(t)
	o := agentOptions(t, n.Root)
	o.config = write(t, "pools: [{kind: hca}]\nsriov: [{pf: \"0000:3b:00.0\", count: 2}, {pf: ens9, count: 1}, {pf: \"0000:3b:00.0 \", count: 1}]")
	if _, err := newAgent(o); err == nil || !strings.Contains(err.Error(), "sriov[2].pf") {
		t.Errorf("a name with a space: %v", err)
	}
	o.config = write(t, "pools: [{kind: hca}]\nsriov: [{pf: \"0000:3b:00.0\", count: 2}, {pf: ens9, count: 1}, {pf: \"0000:d8:00.0\", count: 1}]")
	n.SRIOV(n.InfiniBand.Function, 8)
	a, err := newAgent(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.run(ctx) }()
	await(t, a, `sriov_condition{condition="settled",pf="0000:3b:00.0"} 1`)
	await(t, a, `sriov_vfs{pf="0000:3b:00.0"} 2`)
	await(t, a, `sriov_condition{condition="absent",pf="ens9"} 1`)
	await(t, a, `sriov_condition{condition="failed",pf="0000:d8:00.0"} 1`)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, config string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pools.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestRefusedSettings: each wrong setting is named, and nothing is started.
func TestRefusedSettings(t *testing.T) {
	for want, args := range map[string][]string{
		"--config: open":            {"--config", "/nonexistent/pools.yaml"},
		"pools[0].kind":             {"--config", write(t, "pools: [{kind: gpu}]")},
		"--injection \"magic\"":     {"--injection", "magic"},
		"--interval 0s":             {"--interval", "0s"},
		"--memlock-max: \"lots\"":   {"--memlock-max", "lots", "--grant-socket", filepath.Join(t.TempDir(), "s")},
		"--grant-socket /dev/null":  {"--grant-socket", "/dev/null/s"},
		"--log-level":               {"--log-level", "loud"},
		"--log-format \"xml\"":      {"--log-format", "xml"},
		"unknown command \"serve\"": {"serve"},
	} {
		if _, err := command(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

func agentOptions(t *testing.T, root string) *options {
	t.Helper()
	dir := t.TempDir()
	return &options{
		root: root, hostRoot: root, kubeletDir: filepath.Join(dir, "plugins"), injection: "cdi", cdi: filepath.Join(dir, "cdi"),
		grantSocket: filepath.Join(dir, "grant", "grant.sock"), memlockMax: "64GiB", podResources: filepath.Join(dir, "no-kubelet"), criSocket: filepath.Join(dir, "no-runtime"),
		interval: 5 * time.Millisecond, logLevel: "error", logFormat: "json",
	}
}

func get(t *testing.T, a *agent, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	a.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

// TestAgent: without a kubelet the agent runs, scans its devices and reports that it is not
// ready.
func TestAgent(t *testing.T) {
	n := sysfstest.NewNode(t)
	a, err := newAgent(agentOptions(t, n.Root))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.o.listen = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.run(ctx) }()
	await(t, a, `device_healthy{device="0000:d8:00.0",name="mlx5_1",numa="1",resource="outrigger.dev/hca"} 1`)
	n.Unplug(n.InfiniBand)
	await(t, a, `device_healthy{device="0000:d8:00.0",name="mlx5_1",numa="1",resource="outrigger.dev/hca"} 0`)
	refusedGrant(t, a)
	if code, body := get(t, a, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "not registered") {
		t.Errorf("readyz: %d %s", code, body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	description, err := os.ReadFile(filepath.Join(a.o.cdi, "outrigger.dev-hca.json"))
	if err != nil || strings.Contains(string(description), "0000:d8:00.0") || !strings.Contains(string(description), filepath.Join(n.Root, "dev/infiniband/uverbs2")) {
		t.Errorf("CDI description %s, %v", description, err)
	}
}

// refusedGrant asks for locked memory. The test's process is in no pod, or in a pod whose
// runtime does not answer, so the request must be refused.
func refusedGrant(t *testing.T, a *agent) {
	t.Helper()
	c, err := grant.Dial(t.Context(), a.o.grantSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var no *grant.Refused
	if n, err := c.Memlock(t.Context(), 1<<20); !errors.As(err, &no) {
		t.Errorf("this test was granted %d bytes, %v", n, err)
	}
	await(t, a, `grants_total{op="connection",outcome="refused"} 1`)
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{"1": 1, "64KiB": 64 << 10, "3MiB": 3 << 20, "64GiB": 64 << 30, "2TiB": 2 << 40, "unlimited": math.MaxUint64} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1GB", "GiB", "1.5GiB", "16777216TiB", "18446744073709551616"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%s became %d", text, got)
		}
	}
}

func await(t *testing.T, a *agent, metric string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, body := get(t, a, "/metrics")
		if strings.Contains(body, "outrigger_devplugin_"+metric) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s in\n%s", metric, body)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestHealthz: an agent that has stopped scanning reports itself as unhealthy.
func TestHealthz(t *testing.T) {
	o := agentOptions(t, t.TempDir())
	o.grantSocket = "" // run would close the socket
	a, err := newAgent(o)
	if err != nil {
		t.Fatal(err)
	}
	defer a.kubelet.Close()
	a.o.interval = time.Hour
	a.refresh()
	if code, body := get(t, a, "/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d %s", code, body)
	}
	a.scanned.Store(time.Now().Add(-13 * time.Hour).UnixNano())
	if code, _ := get(t, a, "/healthz"); code != http.StatusServiceUnavailable {
		t.Errorf("healthz after 13 hours without a look: %d", code)
	}
}

func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := agentOptions(t, t.TempDir())
	o.listen = l.Addr().String()
	if err := serve(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("served on a taken address: %v", err)
	}
}

// TestProbeAmongStrangers: incomplete requests of untrusted clients do not block the kubelet's
// probe.
func TestProbeAmongStrangers(t *testing.T) {
	o := agentOptions(t, t.TempDir())
	o.grantSocket = ""
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.listen = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a, err := newAgent(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.kubelet.Close() }() // no request was sent
	a.refresh()
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveMetrics(ctx, a) }()
	for {
		c, err := net.Dial("tcp", o.listen)
		if errors.Is(err, unix.ECONNREFUSED) {
			continue // the server does not listen yet
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close() // no request was sent
		break
	}
	list := hostile.Gather(t, o.listen, 500, hostile.Says("GET /"))
	r, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + o.listen + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close() // the body is short
	if r.StatusCode != http.StatusOK {
		t.Error(r.Status)
	}
	if open := list.Open(t); open > scrapes.Slots {
		t.Errorf("%d connections are open, want %d at most", open, scrapes.Slots)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFirstAllocation: before the kubelet has reported what containers hold, no container gets
// a device.
func TestFirstAllocation(t *testing.T) {
	n := sysfstest.NewNode(t)
	o := agentOptions(t, n.Root)
	o.grantSocket = ""
	a, err := newAgent(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.kubelet.Close() }() // no request was sent
	a.refresh()
	if err := a.firstHeld(t.Context()); err == nil || !strings.Contains(err.Error(), "--pod-resources "+o.podResources) {
		t.Errorf("%v", err)
	}
	a.ledger.Hold(nil)
	if err := a.firstHeld(t.Context()); err != nil {
		t.Error(err)
	}
}
