package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/api/grant"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/why"
	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/certify"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/mpi"
)

// waiting is a sidecar whose issuer does not answer until startIssuer is called.
type waiting struct {
	o           *options
	startIssuer func()
	done        chan error
	stop        context.CancelFunc
}

// startWaiting starts such a sidecar, for rank 0 of a job of one rank.
func startWaiting(t *testing.T, noPMI bool) *waiting {
	t.Helper()
	dir, err := os.MkdirTemp("", "away-") //nolint:usetesting // socket paths are short; t.TempDir's need not be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	authority, err := pki.New("0123456789abcdef", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issuer := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		key, err := pki.ReadRequest(raw)
		if err != nil {
			t.Error(err)
			return
		}
		cert, err := authority.Certify(key, 0)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(cert)
	}))
	// The issuer's address is known, and refuses connections.
	endpoint, err := pki.New("issuer", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	doc := &bootstrap.Document{
		Version: bootstrap.Version, Job: bootstrap.Job{Name: "away", ID: "0123456789abcdef"}, Ranks: 1,
		Pods: []bootstrap.Pod{{Name: "0", Address: freeAddress(t), Ranks: 1}},
		TLS: bootstrap.TLS{CA: string(authority.CA()), Issuer: &bootstrap.Issuer{
			URL: "https://" + strings.Replace(address, "127.0.0.1", "localhost", 1) + "/v1/certificate", CA: string(endpoint.CA()), TokenFile: filepath.Join(dir, "token"),
		}},
		Memory: bootstrap.Memory{ArenaBytes: 16 << 20},
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"bootstrap.json": raw, "token": []byte("the token")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := &waiting{done: make(chan error, 1), o: &options{
		bootstrap: filepath.Join(dir, "bootstrap.json"), socket: filepath.Join(dir, "s"), metrics: []string{"unix:" + filepath.Join(dir, "m")},
		health: freeAddress(t), logLevel: "error", noPMI: noPMI, drain: time.Second, termination: filepath.Join(dir, "message"), once: filepath.Join(dir, "once"),
	}}
	a.startIssuer = func() {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		issuer.Listener = l
		issuer.TLS = &tls.Config{Certificates: []tls.Certificate{certificateOf(t, endpoint, "localhost")}, MinVersion: tls.VersionTLS13}
		issuer.StartTLS()
		t.Cleanup(issuer.Close)
	}
	ctx, stop := context.WithCancel(t.Context())
	a.stop = stop
	go func() { a.done <- run(ctx, a.o) }()
	t.Cleanup(func() {
		stop()
		if err := <-a.done; err != nil {
			t.Error("the sidecar:", err)
		}
	})
	return a
}

// freeAddress returns a local address that no process listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// ask requests path from the sidecar's health port, again until there is an answer.
func (a *waiting) ask(t *testing.T, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		resp, err := client.Get("http://" + a.o.health + path)
		if err == nil {
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(text)
		}
		select {
		case err := <-a.done:
			a.done <- nil
			t.Fatal("the sidecar has ended:", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestIssuerOutage: while the issuer does not answer, a sidecar is alive and not ready,
// reports to the kubelet, to its launcher and to outrigger why what it waits for, and lets
// ranks connect and wait. When the issuer answers, it joins its job.
func TestIssuerOutage(t *testing.T) {
	a := startWaiting(t, true)
	if code, text := a.ask(t, "/healthz"); code != http.StatusOK {
		t.Fatalf("health %d: %s", code, text)
	}
	if _, err := os.Stat(a.o.socket); err != nil {
		t.Error("the sidecar is alive before applications may connect:", err)
	}
	reasons, ready := make(chan string, 16), make(chan error, 1)
	go func() {
		ready <- mpi.Await(t.Context(), a.o.socket, time.Hour, func(awaits string) { reasons <- awaits })
	}()
	for text := ""; !strings.Contains(text, "a certificate from https://"); {
		select {
		case text = <-reasons:
		case err := <-ready:
			t.Fatal("the launcher did not wait:", err)
		}
	}
	if code, text := a.ask(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "the sidecar waits for a certificate from https://") || !strings.Contains(text, "connection refused") {
		t.Errorf("readiness %d: %s", code, text)
	}
	if code, _ := a.ask(t, "/why"); code != http.StatusNotFound { // as when the sidecar is ready
		t.Errorf("the port of health shows ranks: %d", code)
	}
	ranks, err := jobrun.Why(t.Context(), []string{strings.TrimPrefix(a.o.metrics[0], "unix:")})
	if lines := fmt.Sprint(why.Explain(ranks)); err != nil || !strings.Contains(lines, "rank 0: has not started: the sidecar waits for a certificate from https://") {
		t.Errorf("why: %s %v", lines, err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := outrigger.Open(t.Context(), outrigger.Config{Socket: a.o.socket})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	select {
	case err := <-ready:
		t.Fatal("the launcher did not wait:", err)
	case err := <-opened:
		t.Fatal("the rank did not wait:", err)
	default:
	}
	a.startIssuer()
	if err := errors.Join(<-ready, <-opened); err != nil {
		t.Error(err)
	}
	if code, text := a.ask(t, "/readyz"); code != http.StatusOK {
		t.Errorf("readiness %d: %s", code, text)
	}
}

// TestEndedWhileItWaits: if a sidecar is told to end while it waits for the issuer, it has
// not failed, and another sidecar may start in the pod.
func TestEndedWhileItWaits(t *testing.T) {
	a := startWaiting(t, true)
	a.ask(t, "/healthz")
	a.stop()
	if err := <-a.done; err != nil {
		t.Error(err)
	}
	a.done <- nil
	if m, err := podlife.Read(a.o.termination); err != nil || len(m.Failures) > 0 {
		t.Errorf("termination message %+v %v", m, err)
	}
	for _, left := range []string{a.o.socket, a.o.socket + names.LaunchSuffix, a.o.once} {
		if _, err := os.Stat(left); err == nil {
			t.Errorf("%s is left", left)
		}
	}
}

// TestKilledWhileItWaits: after a sidecar that is killed while it waits for the issuer, the
// next one in its pod joins the job. After one that is killed when it has joined, the next
// one is refused, since the job's state is lost.
func TestKilledWhileItWaits(t *testing.T) {
	const role = "OUTRIGGER_TEST_SIDECAR"
	at := func(dir, health string) *options {
		return &options{
			bootstrap: filepath.Join(dir, "bootstrap.json"), socket: filepath.Join(dir, "s"), metrics: []string{"unix:" + filepath.Join(dir, "m")},
			health: health, logLevel: "error", noPMI: true, drain: time.Second, termination: filepath.Join(dir, "message"), once: filepath.Join(dir, "once"),
		}
	}
	if dir := os.Getenv(role); dir != "" {
		t.Fatal(run(t.Context(), at(dir, os.Getenv(role+"_HEALTH"))))
	}
	a := startWaiting(t, true)
	a.ask(t, "/healthz")
	a.stop() // the sidecars below run as processes of their own
	if err := <-a.done; err != nil {
		t.Fatal(err)
	}
	defer func() { a.done <- nil }()
	killed := func(awaits bool) {
		t.Helper()
		c := exec.Command(os.Args[0], "-test.run=^TestKilledWhileItWaits$") //nolint:gosec // this test
		c.Env = append(os.Environ(), role+"="+filepath.Dir(a.o.once), role+"_HEALTH="+a.o.health)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for {
			code, text := a.ask(t, "/readyz")
			if code == http.StatusOK || awaits && strings.Contains(text, "certificate") {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if c.Wait() == nil {
			t.Fatal("the sidecar was not killed")
		}
		if _, err := os.Lstat(a.o.socket); err != nil {
			t.Fatalf("the sidecar has left no socket: %v", err)
		}
	}
	killed(true)
	killed(true)
	a.startIssuer()
	killed(false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel() // it would refuse ranks for refusalTime
	if err := run(ctx, a.o); !errors.Is(err, errRestarted) {
		t.Errorf("a sidecar whose predecessor had joined: %v", err)
	}
}

// TestProcessManagementOnlyForMPI: with --no-pmi there is no socket of process management,
// which allocates memory for each request, and the launcher's socket does not answer such
// requests.
func TestProcessManagementOnlyForMPI(t *testing.T) {
	for _, without := range []bool{false, true} {
		a := startWaiting(t, without)
		a.ask(t, "/healthz")
		if _, err := os.Stat(a.o.socket + names.PMISuffix); (err != nil) != without {
			t.Errorf("--no-pmi=%v: %v", without, err)
		}
		a.startIssuer()
		if err := mpi.Await(t.Context(), a.o.socket, time.Hour, func(string) {}); err != nil {
			t.Error(err)
		}
		for _, line := range []string{"cmd=outrigger_meet", "cmd=outrigger_fence ranks=1 bytes=10", "cmd=initack pmiid=0"} {
			if text := request(t, a.o.socket+names.LaunchSuffix, line); text != "" {
				t.Errorf("the launcher's socket answers %s with %q", line, text)
			}
		}
		if text := request(t, a.o.socket+names.LaunchSuffix, "cmd=outrigger_state"); !strings.Contains(text, "failed=0") {
			t.Errorf("the state of the job: %q", text)
		}
	}
}

// request sends a line and returns the answer, or "" if the connection ends without one.
func request(t *testing.T, socket, line string) string {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintln(conn, line); err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(conn) // a reset counts as the end
	return string(text)
}

// TestLongOutage: during an outage of a day the request is repeated with bounded pauses, and
// the same cause is logged at most once a minute.
func TestLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newStart(slog.New(slog.NewTextHandler(&log, nil)))
		begun, tries := time.Now(), 0
		err := s.retry(t.Context(), "a name server", func(error) bool { return false }, func(context.Context) error {
			if tries++; time.Since(begun) > 24*time.Hour {
				return nil
			}
			if awaits, _, _ := s.state(); tries > 1 && awaits != "a name server: lookup on port 1: i/o timeout" {
				t.Fatalf("the sidecar waits for %q", awaits)
			}
			return fmt.Errorf("lookup on port %d: i/o timeout", tries)
		})
		if over := time.Since(begun) - 24*time.Hour; err != nil || over < 0 || over > 2*retryPauseMax {
			t.Errorf("%v, %v after the end of the outage", err, over)
		}
		if tries < 24*360/2 || tries > 24*360*3 {
			t.Errorf("%d tries in a day", tries)
		}
		if awaits, _, _ := s.state(); awaits != "" {
			t.Errorf("the sidecar waits for %q after the outage", awaits)
		}
		if lines := strings.Count(log.String(), "\n"); lines > 24*60+1 {
			t.Errorf("%d lines in the log", lines)
		}
	})
}

// TestRetryLater: a sidecar that has asked too often repeats the request after the time that
// the issuer gives, and not before.
func TestRetryLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStart(slog.New(slog.DiscardHandler))
		last := time.Now().Add(-time.Hour)
		tries := 0
		err := s.retry(t.Context(), "a certificate", func(error) bool { return false }, func(context.Context) error {
			if pause := time.Since(last); pause < 40*time.Second {
				t.Errorf("asked again after %v", pause)
			}
			last = time.Now()
			if tries++; tries == 5 {
				return nil
			}
			return fmt.Errorf("no certificate: %w", &certify.RetryLater{After: 40 * time.Second, Text: "too often"})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestPeersWaitForCertificates: in a job with an issuer, peers may take the longest time that
// a document may have to start, unless the document has a shorter one.
func TestPeersWaitForCertificates(t *testing.T) {
	d := &daemon{doc: &bootstrap.Document{Pods: []bootstrap.Pod{{Ranks: 1}}, Ranks: 1}, o: new(options)}
	if got := d.coreConfig().StartWithin; got != defaultStart {
		t.Errorf("without an issuer: %v", got)
	}
	d.doc.TLS.Issuer = new(bootstrap.Issuer)
	if got := d.coreConfig().StartWithin; got != 7*24*time.Hour {
		t.Errorf("with an issuer: %v", got)
	}
	d.doc.Tuning.StartWithin = bootstrap.Duration(time.Minute)
	if got := d.coreConfig().StartWithin; got != time.Minute {
		t.Errorf("the document's: %v", got)
	}
}

// TestAgentOutage: a sidecar with a device waits for the node's agent.
func TestAgentOutage(t *testing.T) {
	const lots = 1 << 62
	limit(t, 1<<20)
	var log strings.Builder
	s := newStart(slog.New(slog.DiscardHandler))
	hca := devices.EnvPrefix + "HCA=" + devices.Encode([]devices.Device{{Kind: "hca", Name: "mlx5_2", Files: []string{"/dev/infiniband/uverbs2"}}})
	socket := agentAt(t, func(m *grant.Message) *grant.Message {
		return &grant.Message{Version: grant.Version, Op: m.Op, Bytes: m.Bytes}
	})
	l := &locker{log: slog.New(slog.NewTextHandler(&log, nil)), environ: []string{hca}, bytes: lots, start: s, socket: socket + ".later"}
	done := make(chan struct{})
	go func() { defer close(done); l.raise(t.Context()) }()
	for awaits, changed := "", (<-chan struct{})(nil); !strings.Contains(awaits, "the node's agent at "+l.socket); {
		if awaits, _, changed = s.state(); awaits == "" {
			<-changed
		}
	}
	if err := os.Symlink(socket, l.socket); err != nil {
		t.Fatal(err)
	}
	<-done
	if !strings.Contains(log.String(), "was raised") {
		t.Errorf("the log: %s", &log)
	}
}

// certificateOf returns a server's certificate for host, signed by a.
func certificateOf(t *testing.T, a *pki.Authority, host string) tls.Certificate {
	t.Helper()
	key, _, err := pki.NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.Host(key.Public(), host)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
}
