//go:build cluster

package scale

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	contexts "k8s.io/client-go/tools/clientcmd/api"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// operator is the running program.
type operator struct {
	cmd     *exec.Cmd
	ended   chan struct{} // closed when it has, as err says
	err     error
	metrics string // URL
	profile string // URL
	log     string // file
}

// build compiles the operator.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "outrigger-operator")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../operator/cmd/outrigger-operator").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// startOperator runs the operator behind a door, with the settings of its Deployment, but
// without leader election: on a busy machine a lease can be lost, which this test is not
// about. When the test ends, the operator is ended, and must exit with 0.
func startOperator(t *testing.T, program string, d *door) *operator {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	config := contexts.NewConfig()
	config.Clusters["door"] = &contexts.Cluster{Server: "http://" + d.Address}
	config.Contexts["door"] = &contexts.Context{Cluster: "door"}
	config.CurrentContext = "door"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	ports, err := harness.FreePorts(4)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i])) }
	metrics, health, profiles, issuer := at(0), at(1), at(2), at(3)
	o := &operator{metrics: "http://" + metrics + "/metrics", profile: "http://" + profiles + "/debug/pprof/", log: filepath.Join(dir, "log")}
	log, err := os.Create(o.log)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--sidecar-image=outrigger.dev/outrigger-sidecar:test",
		"--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + health, "--pprof-bind-address=" + profiles,
		"--issuer-bind-address=" + issuer, "--issuer-url=https://localhost:" + strconv.Itoa(ports[3]) + "/v1/certificate", "--leader-election-namespace=kube-system",
	}
	o.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), program, append(args, flags.operator...)...)
	o.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	o.cmd.Stdout, o.cmd.Stderr = log, log
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = log.Close() // the program has its own
	o.ended = make(chan struct{})
	go func() {
		o.err = o.cmd.Wait()
		close(o.ended)
	}()
	t.Cleanup(func() { o.stop(t) })
	if err := harness.Poll(t.Context(), func() error {
		o.alive(t)
		_, err := o.get("http://" + health + "/readyz")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return o
}

// alive ends the test if the operator has ended.
func (o *operator) alive(t *testing.T) {
	t.Helper()
	select {
	case <-o.ended:
		text, _ := os.ReadFile(o.log) // its absence says as much
		t.Fatalf("the operator has ended: %v\n%s", o.err, text[max(0, len(text)-4000):])
	default:
	}
}

func (o *operator) stop(t *testing.T) {
	_ = o.cmd.Process.Signal(syscall.SIGTERM) // or it has ended, which err tells
	<-o.ended
	if o.err != nil {
		t.Errorf("the operator's end: %v", o.err)
	}
	text, err := os.ReadFile(o.log)
	if err != nil {
		t.Error(err)
	}
	if flags.profiles != "" {
		if err := os.WriteFile(filepath.Join(flags.profiles, "operator.log"), text, 0o644); err != nil {
			t.Error(err)
		}
	}
	seen := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
			_, what, _ := strings.Cut(line, "msg=")
			what, _, _ = strings.Cut(what, " controller=")
			seen[what]++
			if seen[what] == 1 {
				t.Logf("the operator's log: %s", line)
			}
		}
	}
	for what, n := range seen {
		t.Errorf("the operator's log has %d errors like: %s", n, what)
	}
}

func (o *operator) get(url string) (string, error) {
	resp, err := http.Get(url) //nolint:noctx // a test's own loopback
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(text), err
}

// reconciles returns how often the operator has looked at a job, by result.
func (o *operator) reconciles(t *testing.T) map[string]int {
	t.Helper()
	text, err := o.get(o.metrics)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, `controller_runtime_reconcile_total{controller="mpijob",result="`)
		if !ok {
			continue
		}
		result, value, _ := strings.Cut(rest, `"} `)
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			t.Fatal(err)
		}
		found[result] = int(n)
	}
	if len(found) == 0 {
		t.Fatal("the operator's metrics have no controller_runtime_reconcile_total of mpijob")
	}
	return found
}

// used returns the operator's CPU time so far, and its memory: now, and at the most.
func (o *operator) used(t *testing.T) (cpu time.Duration, rss, peak string) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", o.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		switch name, value, _ := strings.Cut(lines.Text(), ":"); name {
		case "VmHWM":
			peak = strings.TrimSpace(value)
		case "VmRSS":
			rss = strings.TrimSpace(value)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11]) // utime and stime, proc_pid_stat(5)
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, rss, peak
}
