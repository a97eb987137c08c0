package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// farewellCommand runs the test binary as a program of two ranks, of which the first sends and
// ends.
const farewellCommand = "farewell"

const (
	farewells     = 300
	farewellWords = 500
)

// farewell ends rank 0 as soon as its sends have completed, and rank 1 when it has received
// all messages. Rank 0 sends when the file exists; without a file it sends one number, with or
// without a receiver.
func farewell(file string) int {
	err := sayFarewell(context.Background(), file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func sayFarewell(ctx context.Context, file string) error {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	world := s.World()
	if file == "" {
		return errors.Join(outrigger.Send(ctx, world, []uint64{1}, 1, 5), s.Close())
	}
	shared, err := outrigger.Alloc[uint64](s, farewells)
	if err != nil {
		return err
	}
	w, err := outrigger.NewWindow(ctx, world, shared)
	if err != nil {
		return err
	}
	if world.Rank() == 0 {
		err = sendAndGo(ctx, s, w, file)
	} else {
		err = receiveLate(ctx, world, w)
	}
	return errors.Join(err, s.Close())
}

func sendAndGo(ctx context.Context, s *outrigger.Session, w *outrigger.Window[uint64], file string) error {
	for i := range farewells {
		if err := w.Put(ctx, []uint64{uint64(i) + 7}, 1, i); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintln(os.Stdout, "ready to go")
	for {
		if _, err := os.Stat(file); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	// The sidecar copies small messages out of shared memory, and the sender may end.
	words, err := outrigger.Alloc[uint64](s, farewellWords)
	if err != nil {
		return err
	}
	for i := range farewells {
		for k := range words {
			words[k] = uint64(i*farewellWords + k)
		}
		if err := outrigger.Send(ctx, s.World(), words, 1, 5); err != nil {
			return err
		}
	}
	return nil
}

func receiveLate(ctx context.Context, world *outrigger.Comm, w *outrigger.Window[uint64]) error {
	words := make([]uint64, farewellWords)
	for i := range farewells {
		if _, err := outrigger.Recv(ctx, world, words, 0, 5); err != nil {
			return err
		}
		for k, v := range words {
			if v != uint64(i*farewellWords+k) {
				return fmt.Errorf("message %d: word %d is %d", i, k, v)
			}
		}
		time.Sleep(5 * time.Millisecond) // long after the other has gone
	}
	for i, v := range w.Local() {
		if v != uint64(i)+7 {
			return fmt.Errorf("word %d of the window is %d", i, v)
		}
	}
	_, _ = fmt.Fprintln(os.Stdout, "every word right")
	return nil
}

// testBinary returns this program.
func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPodEndsFirst: the ranks of pod 0 send and end, and its sidecar gets SIGTERM at once, as
// from a kubelet, while the sidecar of pod 1 is stopped. The sidecar of pod 0 ends after all
// messages are delivered, and pod 1 continues without it.
func TestPodEndsFirst(t *testing.T) {
	h := prepareHand(t, 1, 1)
	h.doc.Tuning.DeadAfter = bootstrap.Duration(time.Minute) // the stopped one is not dead
	h.doc.Tuning.CreditBytes = 8 << 20                       // all messages may be on their way at once
	h.writeDocument()
	shared := filepath.Join(h.dir, "bin")
	spawn(t, nil, "outrigger-launch", "install", shared).wait(0)
	go0 := filepath.Join(h.dir, "go")
	pods := []*pod{h.pod(0), h.pod(1)}
	for _, p := range pods {
		p.startSidecar()
		p.startRanks(shared+"/outrigger-launch", testBinary(t), farewellCommand, go0)
	}
	pods[0].ranks.says("ready to go")
	pods[1].sidecar.signal(unix.SIGSTOP)
	h.write("go", nil)
	pods[0].ranks.wait(0)
	pods[0].sidecar.signal(unix.SIGTERM)
	time.Sleep(time.Second) // it has time to do the wrong thing
	if pods[0].sidecar.ended() {
		t.Fatalf("the sidecar left before its messages were received\n%s", pods[0].sidecar.out)
	}
	pods[1].sidecar.signal(unix.SIGCONT)
	pods[0].sidecar.wait(0)
	pods[1].ranks.says("every word right")
	pods[1].ranks.wait(0)
	pods[1].sidecar.signal(unix.SIGTERM)
	pods[1].sidecar.wait(0)
	for _, p := range pods {
		if out := p.sidecar.out.String(); strings.Contains(out, "failed") || strings.Contains(out, "work left") {
			t.Errorf("sidecar %d:\n%s", p.number, out)
		}
	}
	var all []podlife.Report
	for _, p := range pods {
		all = append(all, p.report())
	}
	if v := podlife.Blame(all); v != nil {
		t.Errorf("blamed: %v", v)
	}
	sent := all[0].Sidecar.Traffic
	if len(sent) != 1 || sent[0].Transport != *transport || sent[0].Peers != 1 || sent[0].Messages < farewells || sent[0].Bytes < 8*farewells*farewellWords {
		t.Errorf("traffic of pod 0: %+v", sent)
	}
}

// TestContainersOfDifferentUsers: sidecar and application have different users and no
// capability, and the application has its own PID namespace. Only root can set this up; other
// users run both as themselves.
func TestContainersOfDifferentUsers(t *testing.T) {
	const sidecarUser, appUser = 65532, 1000
	h := prepareHand(t, 2, 1)
	h.writeDocument()
	shared := filepath.Join(h.dir, "bin")
	spawn(t, nil, "outrigger-launch", "install", shared).wait(0)
	pods := []*pod{h.pod(0), h.pod(1)}
	if os.Geteuid() == 0 {
		h.giveTo(sidecarUser)
		for _, p := range pods {
			p.sidecarAs = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: sidecarUser, Gid: sidecarUser}}
			p.ranksAs = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: appUser, Gid: appUser}, Cloneflags: syscall.CLONE_NEWPID}
		}
	}
	for _, p := range pods {
		p.startSidecar().says("ready")
		p.startRanks(shared+"/outrigger-launch", ring("-rounds", "200")...)
	}
	for _, p := range pods {
		p.ranks.wait(0)
	}
	pods[0].ranks.says("every byte right")
	for _, p := range pods {
		p.sidecar.signal(unix.SIGTERM)
		p.sidecar.wait(0)
		// Both could write their termination messages, and the launcher has asked its sidecar.
		if r := p.report(); r.Launcher.Outcome != podlife.OutcomeClosed {
			t.Errorf("pod %d: its launcher says %+v", p.number, r.Launcher)
		}
	}
}

// giveTo sets the owners and modes of the job's directory as volumes in a pod have them: the
// sidecar owns its files, and all users can use the directory and the programs.
func (h *hand) giveTo(user int) {
	h.t.Helper()
	files, err := filepath.Glob(filepath.Join(h.dir, "*"))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range files {
		err = errors.Join(err, os.Chown(f, user, user))
	}
	if err := errors.Join(err, os.Chmod(h.dir, 0o777), os.Chmod(bin, 0o755)); err != nil { //nolint:gosec // the point
		h.t.Fatal(err)
	}
}

// TestPodIsKilled: a reader of all pods' termination messages finds the rank that was
// killed, and how.
func TestPodIsKilled(t *testing.T) {
	h := prepareHand(t, 2, 2)
	h.writeDocument()
	pods := []*pod{h.pod(0), h.pod(1)}
	for _, p := range pods {
		p.startSidecar()
		p.startRanks("outrigger-launch", ring("-rounds", "1000000")...)
	}
	pods[1].ranks.says("rank 3 is process ")
	pods[0].ranks.says("rank 1 is process ")
	var pid int
	text := pods[1].ranks.out.String()
	if _, err := fmt.Sscanf(text[strings.Index(text, "rank 3 is"):], "rank 3 is process %d", &pid); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // into the exchange
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var all []podlife.Report
	for _, p := range pods {
		<-p.ranks.done
		p.sidecar.signal(unix.SIGTERM)
		p.sidecar.wait(0)
		all = append(all, p.report())
	}
	v := podlife.Blame(all)
	if v == nil || v.Rank != 3 || v.Pod != 1 || v.Code != 128+9 || v.Reason != podlife.RankKilled || v.String() != "rank 3 (pod 1) was killed by SIGKILL" {
		t.Errorf("blamed: %v\n%+v", v, all)
	}
}

// TestPeerNeverStarts: a message without a receiver is reported at the end, by name.
func TestPeerNeverStarts(t *testing.T) {
	h := prepareHand(t, 1, 1)
	h.writeDocument()
	p := h.pod(0)
	p.startSidecar("--drain", "1500ms")
	p.startRanks("outrigger-launch", testBinary(t), farewellCommand, "").wait(0)
	p.sidecar.signal(unix.SIGTERM)
	p.sidecar.wait(1)
	want := "pod 1 has not acknowledged 1 frames and was never reached at " + h.doc.Pods[1].Address
	out := p.sidecar.out.String()
	if !strings.Contains(out, want) || strings.Count(out, "peer not reached yet") != 1 {
		t.Errorf("want %q, and one word about the peer\n%s", want, out)
	}
	m := lastWords(t, p.sidecarLog)
	if len(m.Failures) != 1 || m.Failures[0].Reason != podlife.Undelivered || !strings.Contains(m.Failures[0].Text, want) {
		t.Errorf("last words: %+v", m)
	}
}

// TestPeerStartsLate checks that a job waits for a pod that starts late.
func TestPeerStartsLate(t *testing.T) {
	h := prepareHand(t, 1, 1)
	h.writeDocument()
	pods := []*pod{h.pod(0), h.pod(1)}
	pods[0].startSidecar()
	pods[0].startRanks("outrigger-launch", ring("-rounds", "10")...)
	pods[0].sidecar.says("peer not reached yet")
	time.Sleep(2 * time.Second) // more than a few tries
	pods[1].startSidecar()
	pods[1].startRanks("outrigger-launch", ring("-rounds", "10")...)
	for _, p := range pods {
		p.ranks.wait(0)
		p.sidecar.signal(unix.SIGTERM)
		p.sidecar.wait(0)
	}
	if out := pods[0].sidecar.out.String(); strings.Count(out, "peer not reached yet") != 1 {
		t.Errorf("more than one word about a peer that is late\n%s", out)
	}
}

// TestSidecarRestarted checks that a sidecar that is started again in its pod does not join
// the job, reports that to every rank, and writes a termination message.
func TestSidecarRestarted(t *testing.T) {
	h := prepareHand(t, 1, 1)
	h.writeDocument()
	p := h.pod(0)
	p.startSidecar()
	p.startRanks("outrigger-launch", ring("-rounds", "10")...) // waits for pod 1
	p.ranks.says("rank 0 is process ")
	p.sidecar.signal(unix.SIGKILL)
	p.sidecar.wait(-1)
	p.ranks.wait(1)
	p.ranks.says("the sidecar has ended")
	if _, err := os.Stat(h.socket(0)); err != nil {
		t.Fatal("a killed sidecar leaves its socket: ", err)
	}
	again := p.startSidecar()
	again.says("refused to start")
	p.startRanks("outrigger-launch", ring("-rounds", "10")...).wait(1)
	p.ranks.says("refused by the sidecar: ")
	p.ranks.says("was started again")
	again.signal(unix.SIGTERM)
	again.wait(1)
	m := lastWords(t, p.sidecarLog)
	if len(m.Failures) != 1 || m.Failures[0].Reason != podlife.SidecarRestarted || m.Failures[0].Rank != 0 {
		t.Errorf("last words: %+v", m)
	}
}

// TestRestartKeepsTheStory: the kubelet keeps the termination message of the latest process
// only; that process repeats the failure that the first one has recorded.
func TestRestartKeepsTheStory(t *testing.T) {
	h := prepareHand(t, 1, 1)
	h.writeDocument()
	p := h.pod(0)
	p.startSidecar()
	p.startRanks("outrigger-launch", "/bin/sh", "-c", "exec "+testBinary(t)+" "+hostileCommand+" die-attached")
	p.ranks.wait(128 + 9)
	p.sidecar.says("job failed")
	p.sidecar.signal(unix.SIGKILL)
	p.sidecar.wait(-1)
	again := p.startSidecar()
	again.says("refused to start")
	again.signal(unix.SIGTERM)
	again.wait(1)
	if m := lastWords(t, p.sidecarLog); len(m.Failures) != 1 || m.Failures[0].Reason != podlife.RankVanished {
		t.Errorf("last words: %+v", m)
	}
}

// TestFailedStartMayBeRepeated checks that a sidecar that has not joined the job leaves no
// marker, and may be started again.
func TestFailedStartMayBeRepeated(t *testing.T) {
	h := prepareHand(t, 1, 1)
	h.writeDocument()
	p := h.pod(0)
	p.startSidecar("--metrics", "unix:"+h.dir+"/no/m").wait(1)
	if m := lastWords(t, p.sidecarLog); len(m.Failures) != 1 || m.Failures[0].Reason != podlife.SidecarFailed {
		t.Errorf("last words: %+v", m)
	}
	p.startSidecar().says("ready")
	p.sidecar.signal(unix.SIGTERM)
	p.sidecar.wait(0)
}

// TestTransportMissing checks that a job that requires RDMA does not run without it.
func TestTransportMissing(t *testing.T) {
	const hca = `OUTRIGGER_DEVICES_HCA=[{"kind":"hca","name":"mlx5_0","numa":0,"files":["/dev/infiniband/uverbs0"]}]`
	for what, c := range map[string]struct {
		env  []string
		want []string
		not  string
	}{
		"nothing":  {nil, []string{"no HCA is allocated to this container: give it a limit for outrigger.dev/hca", "this build has no verbs link"}, "mlx"},
		"no link":  {[]string{hca}, []string{"this build has no verbs link"}, "no HCA"},
		"nonsense": {[]string{"OUTRIGGER_DEVICES_HCA=x"}, []string{"OUTRIGGER_DEVICES_HCA: "}, "no HCA"},
	} {
		h := prepareHand(t, 1, 1)
		h.doc.Tuning.Transport, h.doc.Tuning.Require = "", bootstrap.Names{bootstrap.TransportRDMA}
		h.writeDocument()
		log := filepath.Join(h.dir, "log")
		s := spawn(t, c.env, "outrigger-sidecar", "--bootstrap", h.dir+"/bootstrap.json", "--pod", "1", "--socket", h.socket(1), "--termination-log", log)
		s.wait(78)
		for _, want := range c.want {
			s.says(want)
		}
		m := lastWords(t, log)
		if len(m.Failures) != 1 || m.Failures[0].Reason != podlife.TransportMissing || m.Failures[0].Code != 78 || m.Failures[0].Rank != 1 ||
			strings.Contains(m.Failures[0].Text, c.not) {
			t.Errorf("%s: last words %+v", what, m)
		}
	}
}

// TestWatchedFromTheNetwork checks that the sidecar serves metrics and reports by TCP on all
// addresses, and does not serve the drills there.
func TestWatchedFromTheNetwork(t *testing.T) {
	h := prepareHand(t, 1, 1, 1)
	h.doc.Ranks, h.doc.Pods = 2, h.doc.Pods[:2] // the third address is for metrics
	h.writeDocument()
	tcp, local := h.listen[2], filepath.Join(h.dir, "metrics")
	pods := []*pod{h.pod(0), h.pod(1)}
	for _, p := range pods {
		_, port, _ := strings.Cut(h.listen[p.number], ":")
		h.listen[p.number] = ":" + port
	}
	pods[0].startSidecar("--metrics", "unix:"+local, "--metrics", tcp)
	pods[1].startSidecar()
	for _, p := range pods {
		p.startRanks("outrigger-launch", ring("-rounds", "10")...)
	}
	for _, p := range pods {
		p.ranks.wait(0)
	}
	for _, c := range []struct {
		method, path string
		code         int
		text         string
	}{
		{http.MethodGet, "/readyz", http.StatusOK, "ok"},
		{http.MethodGet, "/healthz", http.StatusOK, "ok"},
		{http.MethodGet, "/metrics", http.StatusOK, `outrigger_transport_info{transport="` + *transport + `"} 1`},
		{http.MethodPost, "/debug/break/1", http.StatusNotFound, ""},
	} {
		code, text := request(t, c.method, "http://"+tcp+c.path)
		if code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s %s: %d, want %d with %q\n%s", c.method, c.path, code, c.code, c.text, text)
		}
	}
	_, text := request(t, http.MethodGet, "http://"+tcp+"/report")
	var report struct{ Transport []podlife.Traffic }
	if err := json.Unmarshal([]byte(text), &report); err != nil || len(report.Transport) != 1 || report.Transport[0].Transport != *transport {
		t.Errorf("%v: %s", err, text)
	}
	j := &job{t: t, dir: h.dir}
	if err := os.Mkdir(filepath.Join(h.dir, "pod0"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(local, filepath.Join(h.dir, "pod0", "metrics.sock")); err != nil {
		t.Fatal(err)
	}
	resp, err := j.sidecar(http.MethodPost, "/debug/break/1", "pod0")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // empty
	if resp.StatusCode != http.StatusOK {
		t.Errorf("drill on the Unix socket: %s", resp.Status)
	}
	for _, p := range pods {
		p.sidecar.signal(unix.SIGTERM)
		p.sidecar.wait(0)
	}
}

func request(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: jobTime, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
