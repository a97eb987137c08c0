package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is when a test counts as hung.
const timeout = 30 * time.Second

// serve runs servers for two pods, of two ranks and of one.
func serve(t *testing.T, change ...func(*Config)) []*net.UnixAddr {
	t.Helper()
	f := newForest(t, 2)
	var list []*net.UnixAddr
	for pod, first := range []int{0, 2} {
		cfg := Config{
			First: first, Count: 2 - pod, Layout: []int{2, 1}, Job: "kvs_test", Gather: f.trees[pod].Gather,
			Attached: func(rank int) bool { return rank == 1 }, Vanished: func(rank int) bool { return false }, Log: slog.New(slog.DiscardHandler),
			Abort: func(rank int, code uint32) { t.Errorf("rank %d aborts with %d", rank, code) },
		}
		for _, c := range change {
			c(&cfg)
		}
		s := New(cfg)
		addr := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"}
		l, err := net.ListenUnix("unix", addr)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		t.Cleanup(func() {
			_ = l.Close() // Serve reports it
			s.Close()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
		list = append(list, addr)
	}
	return list
}

// rank is a PMI-1 library at the other end of a connection.
type rank struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, addr *net.UnixAddr) *rank {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // nothing is written to it
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	return &rank{t, conn, bufio.NewReader(conn)}
}

// send may find the other end closed: hear reports that.
func (r *rank) send(line string) { _, _ = fmt.Fprintln(r.conn, line) }

// hear reads a line, or returns the empty string if the connection has ended.
func (r *rank) hear() string {
	line, err := r.in.ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(line, "\n")
}

func (r *rank) ask(line, want string) {
	r.t.Helper()
	r.send(line)
	if got := r.hear(); got != want {
		r.t.Errorf("%s: %q, want %q", line, got, want)
	}
}

func join(t *testing.T, addr *net.UnixAddr, number int) *rank {
	t.Helper()
	r := dial(t, addr)
	r.ask(fmt.Sprintf("cmd=initack pmiid=%d", number), "cmd=initack rc=0")
	for _, want := range []string{"cmd=set size=3", fmt.Sprintf("cmd=set rank=%d", number), "cmd=set debug=0"} {
		if got := r.hear(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r.ask("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	return r
}

// TestRanksMeet plays the start of an MPI program of three ranks in two pods.
func TestRanksMeet(t *testing.T) {
	addr := serve(t)
	ranks := []*rank{join(t, addr[0], 0), join(t, addr[0], 1), join(t, addr[1], 2)}
	ranks[0].ask("cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024")
	ranks[0].ask("cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=kvs_test")
	ranks[0].ask("cmd=get kvsname=kvs_test key=PMI_process_mapping", "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,1))")
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() {
			for round := range 3 {
				r.ask(fmt.Sprintf("cmd=put kvsname=kvs_test key=card%d-%d value=at %d", i, round, i), "cmd=put_result rc=0 msg=success")
				r.ask("cmd=barrier_in", "cmd=barrier_out rc=0")
				for j := range ranks {
					r.ask(fmt.Sprintf("cmd=get kvsname=kvs_test key=card%d-%d", j, round), fmt.Sprintf("cmd=get_result rc=0 msg=success value=at %d", j))
				}
			}
			r.ask("cmd=get kvsname=kvs_test key=none", "cmd=get_result rc=-1 msg=key_not_found value=unknown")
			r.ask("cmd=finalize", "cmd=finalize_ack rc=0")
		})
	}
	all.Wait()
}

// TestRefused checks that an invalid line ends the connection, that a request that is not
// offered is refused by its name, and that other connections go on.
func TestRefused(t *testing.T) {
	addr := serve(t)
	for what, line := range map[string]string{
		"no command":        "hello",
		"another pod's":     "cmd=initack pmiid=2",
		"no number":         "cmd=initack pmiid=x",
		"before initack":    "cmd=put key=a value=b",
		"an endless line":   strings.Repeat("x", 2*lineMax),
		"a rank below zero": "cmd=initack pmiid=-1",
	} {
		r := dial(t, addr[0])
		r.send(line)
		if got := r.hear(); got != "" {
			t.Errorf("%s: %q", what, got)
		}
	}
	first := join(t, addr[0], 0)
	second := dial(t, addr[0])
	second.ask("cmd=initack pmiid=0", "") // the rank is connected already
	first.ask("cmd=spawn nprocs=2 execname=x", "cmd=spawn_result rc=-1 msg=a_job_of_Outrigger_has_a_fixed_number_of_ranks:_MPI_Comm_spawn_is_not_offered")
	for sofar := 1; sofar < 3; sofar++ { // two programs: one answer
		first.send("mcmd=spawn\nnprocs=2\nexecname=x y\ntotspawns=2")
		first.send(fmt.Sprintf("spawnssofar=%d\nargcnt=1\narg1=cmd=abort\nno equals sign\npreput_num=0", sofar))
		if sofar < 2 {
			first.send("endcmd")
		}
	}
	first.ask("endcmd", "cmd=spawn_result rc=-1 msg=a_job_of_Outrigger_has_a_fixed_number_of_ranks:_MPI_Comm_spawn_is_not_offered")
	first.ask("cmd=publish_name service=x", "cmd=publish_result rc=-1 msg=names_are_not_offered")
	first.ask("cmd=put kvsname=k key=PMI_process_mapping value=x", "cmd=put_result rc=-1 msg=the_process_mapping_is_the_launcher's")
	first.send("cmd=barrier_in\ncmd=barrier_in")
	if got := first.hear(); got != "" {
		t.Errorf("two barriers at once: %q", got)
	}
}

func TestNotAllowed(t *testing.T) {
	addr := serve(t, func(c *Config) { c.Allow = func(net.Conn) error { return errors.New("no") } })
	dial(t, addr[0]).ask("cmd=initack pmiid=0", "")
}

// TestAbort checks that a rank that aborts ends the job with its code, and may send more
// requests.
func TestAbort(t *testing.T) {
	for code, want := range map[string]string{"7": "rank 1: 7", "678509711": "rank 1: 143", "-1": "rank 1: 255", "0": "rank 1: 1", "none": "rank 1: 1"} {
		var aborts []string
		addr := serve(t, func(c *Config) {
			c.Abort = func(rank int, code uint32) { aborts = append(aborts, fmt.Sprintf("rank %d: %d", rank, code)) }
		})
		early, late := dial(t, addr[0]), dial(t, addr[0])
		early.send("cmd=outrigger_aborts")
		early.send("cmd=outrigger_rank rank=0") // answered after the requests before it
		early.hear()
		r := join(t, addr[0], 1)
		for range 2 { // the first one counts
			r.send("cmd=abort exitcode=" + code + " message=it went wrong")
			r.ask("cmd=get kvsname=k key=nothing", "cmd=get_result rc=-1 msg=key_not_found value=unknown")
		}
		if len(aborts) != 1 || aborts[0] != want {
			t.Errorf("exit code %s: %q, want %s", code, aborts, want)
		}
		late.send("cmd=outrigger_aborts")
		line := strings.ReplaceAll("cmd=aborts "+want, "rank 1: ", "rank=1 code=")
		for who, w := range map[string]*rank{"early": early, "late": late} {
			if got := w.hear(); got != line {
				t.Errorf("exit code %s: who asks %s hears %q, want %q", code, who, got, line)
			}
		}
		extra := dial(t, addr[0])
		extra.send("cmd=outrigger_aborts")
		if got := extra.hear(); got != "" {
			t.Errorf("a third launcher of two ranks hears %q", got)
		}
	}
}

// TestLauncherAsks checks what a launcher is told about a rank.
func TestLauncherAsks(t *testing.T) {
	addr := serve(t)
	join(t, addr[0], 0)
	q := dial(t, addr[0])
	q.ask("cmd=outrigger_rank rank=0", "cmd=outrigger_rank rc=0 init=1 attached=0 vanished=0 loaded=0")
	q.ask("cmd=outrigger_rank rank=1", "cmd=outrigger_rank rc=0 init=0 attached=1 vanished=0 loaded=0")
	q.ask("cmd=outrigger_rank rank=2", "")
}

// TestProcessTells checks that the report of a process about its MPI is stored, and that
// its connection ends.
func TestProcessTells(t *testing.T) {
	addr := serve(t)
	q := dial(t, addr[0])
	q.ask("cmd=outrigger_rank rank=0", "cmd=outrigger_rank rc=0 init=0 attached=0 vanished=0 loaded=0")
	for _, line := range []string{"cmd=outrigger_loaded", "cmd=outrigger_local"} {
		p := dial(t, addr[0])
		p.send(line)
		if got := p.hear(); got != "" {
			t.Errorf("%s is answered by %q", line, got)
		}
	}
	q.ask("cmd=outrigger_rank rank=0", "cmd=outrigger_rank rc=0 init=0 attached=0 vanished=0 loaded=1")
}

// TestFinalizing checks that a rank in MPI_Finalize is reported, by a connection of its
// own, and also its return.
func TestFinalizing(t *testing.T) {
	s := New(Config{Count: 2, Layout: []int{2}})
	defer s.Close()
	say := func(rank, over string) error {
		return s.finalizes(&client{}, request{fields: map[string]string{"rank": rank, "over": over}})
	}
	if err := say("1", "0"); err != nil {
		t.Fatal(err)
	}
	if s.Meeting(1) <= 0 || s.Meeting(0) != 0 {
		t.Errorf("rank 1 is in it for %v, rank 0 for %v", s.Meeting(1), s.Meeting(0))
	}
	if err := say("1", "1"); err != nil || s.Meeting(1) != 0 {
		t.Errorf("it is over, and rank 1 is in it for %v (%v)", s.Meeting(1), err)
	}
	for _, foreign := range []string{"2", "-1", "x", ""} {
		if err := say(foreign, "0"); err == nil {
			t.Errorf("rank %q is none of this pod, and is taken", foreign)
		}
	}
}

// TestLauncherTells checks that the end of a rank with an error is answered after it is
// recorded.
func TestLauncherTells(t *testing.T) {
	var told string
	addr := serve(t, func(c *Config) { c.Failed = func(rank int, code uint32) { told += fmt.Sprint(rank, " ", code) } })
	dial(t, addr[0]).ask("cmd=outrigger_failed rank=1 code=139", "cmd=outrigger_failed rc=0")
	if told != "1 139" {
		t.Errorf("told %q", told)
	}
	for _, bad := range []string{"rank=1", "rank=1 code=0", "rank=1 code=256", "rank=1 code=-1", "rank=2 code=1", "code=1"} {
		dial(t, addr[0]).ask("cmd=outrigger_failed "+bad, "")
	}
	if told != "1 139" {
		t.Errorf("told %q", told)
	}
}

// TestAbortPrecedesTheEnd checks that a rank that has requested the end of the job, and
// whose process ends, has aborted, however late its request is read. If a child keeps the
// rank's connection open, the end of the rank waits for a bounded time.
func TestAbortPrecedesTheEnd(t *testing.T) {
	told := make(chan string, 4)
	addr := serve(t, func(c *Config) {
		c.Abort = func(rank int, code uint32) { told <- fmt.Sprint("abort ", rank, " ", code) }
		c.Failed = func(rank int, code uint32) { told <- fmt.Sprint("failed ", rank, " ", code) }
	})
	r, launcher := join(t, addr[0], 1), dial(t, addr[0])
	launcher.send("cmd=outrigger_failed rank=1 code=139")
	time.Sleep(20 * time.Millisecond) // the rank's request is on its way
	r.send("cmd=abort exitcode=15")
	_ = r.conn.Close()
	if got := launcher.hear(); got != "cmd=outrigger_failed rc=0" {
		t.Errorf("the launcher hears %q", got)
	}
	if first, second := <-told, <-told; first != "abort 1 15" || second != "failed 1 139" {
		t.Errorf("told %q, then %q", first, second)
	}
	join(t, addr[0], 0) // and keeps its connection
	dial(t, addr[0]).ask("cmd=outrigger_failed rank=0 code=1", "cmd=outrigger_failed rc=0")
	if got := <-told; got != "failed 0 1" {
		t.Errorf("told %q", got)
	}
}

// TestLauncherTellsOfRightEnds checks the same for a rank that ends with code 0.
func TestLauncherTellsOfRightEnds(t *testing.T) {
	var told []int
	addr := serve(t, func(c *Config) { c.Ended = func(rank int) { told = append(told, rank) } })
	dial(t, addr[0]).ask("cmd=outrigger_ended rank=1", "cmd=outrigger_ended rc=0 vanished=0")
	for _, bad := range []string{"rank=2", "rank=-1", "rank=", ""} {
		dial(t, addr[0]).ask("cmd=outrigger_ended "+bad, "")
	}
	if len(told) != 1 || told[0] != 1 {
		t.Errorf("told %v", told)
	}
}

// TestPodsDoNotMeet checks that ranks in a barrier that fails are disconnected. Errors that
// follow from the end of a pod, or of the job, are logged as warnings.
func TestPodsDoNotMeet(t *testing.T) {
	for level, c := range map[string]struct {
		err    error
		failed bool
	}{
		"level=ERROR":   {errors.New("too many bytes"), false},
		"level=WARN":    {fmt.Errorf("pod 1: %w", io.EOF), false},
		"level=WARN ":   {errors.New("too many bytes"), true},
		"level=ERROR ":  {&net.OpError{Op: "dial", Err: unix.EMFILE}, false},
		"level=WARN  ":  {&net.OpError{Op: "read", Err: unix.ECONNRESET}, false},
		"level=WARN   ": {fmt.Errorf("pod 1 %w: look", errChildGone), false},
	} {
		var log logged
		addr := serve(t, func(cfg *Config) {
			cfg.Gather = func(context.Context, []byte) ([][]byte, error) { return nil, c.err }
			cfg.JobFailed = func() bool { return c.failed }
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		join(t, addr[1], 2).ask("cmd=barrier_in", "")
		if text := log.String(); !strings.Contains(text, strings.TrimSpace(level)+` msg="the ranks of this pod cannot meet the others"`) {
			t.Errorf("want %s: %s", level, text)
		}
	}
}

// logged is a log that may be read while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestIdleConnections checks that any number of connections that send nothing take no place
// of a rank.
func TestIdleConnections(t *testing.T) {
	addr := serve(t)
	for range 10 * (&Config{Count: 2}).places() {
		dial(t, addr[0])
	}
	// Connections that have only just come keep their places for a moment.
	for begin := time.Now(); ; {
		r := dial(t, addr[0])
		if r.send("cmd=initack pmiid=0"); r.hear() != "" {
			break
		}
		if time.Since(begin) > timeout {
			t.Fatal("silent connections keep a rank out")
		}
	}
	q := dial(t, addr[0])
	q.ask("cmd=outrigger_rank rank=0", "cmd=outrigger_rank rc=0 init=0 attached=0 vanished=0 loaded=0")
}

// TestUnreadAnswers checks that a rank that reads nothing delays no other rank, not in the
// barrier either, and not the end of the server (serve).
func TestUnreadAnswers(t *testing.T) {
	addr := serve(t)
	deaf, other, third := join(t, addr[0], 0), join(t, addr[0], 1), join(t, addr[1], 2)
	for answered := 0; answered < 4<<20; answered += 1 << 10 { // more than any socket's buffer
		if err := deaf.conn.SetWriteDeadline(time.Now().Add(time.Second / 2)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(deaf.conn, strings.Repeat("cmd=get kvsname=kvs_test key=none\n", 16)+"cmd=get_maxes"); err != nil {
			break // the server has stopped reading, too
		}
	}
	other.ask("cmd=get kvsname=kvs_test key=none", "cmd=get_result rc=-1 msg=key_not_found value=unknown")
	dial(t, addr[0]).ask("cmd=outrigger_rank rank=1", "cmd=outrigger_rank rc=0 init=1 attached=1 vanished=0 loaded=0")
	third.ask("cmd=get kvsname=kvs_test key=none", "cmd=get_result rc=-1 msg=key_not_found value=unknown")
}

// TestUnreadBarrier checks that ranks leave a barrier whose end one rank does not read.
func TestUnreadBarrier(t *testing.T) {
	addr := serve(t)
	deaf, other, third := join(t, addr[0], 0), join(t, addr[0], 1), join(t, addr[1], 2)
	if err := deaf.conn.(*net.UnixConn).CloseRead(); err != nil {
		t.Fatal(err)
	}
	deaf.send("cmd=barrier_in")
	var both sync.WaitGroup
	for _, r := range []*rank{other, third} {
		both.Go(func() { r.ask("cmd=barrier_in", "cmd=barrier_out rc=0") })
	}
	both.Wait()
}

// TestAbortTold: a launcher reports a rank of its pod that has requested the end of the job
// from another server.
func TestAbortTold(t *testing.T) {
	var mu sync.Mutex
	var heard []string
	addrs := serve(t, func(c *Config) {
		c.Abort = func(rank int, code uint32) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, fmt.Sprint(rank, " ", code))
		}
	})
	watcher := dial(t, addrs[0])
	watcher.send("cmd=outrigger_aborts")
	for i, c := range [][2]string{{"7", "7"}, {"-1", "255"}, {"256", "1"}, {"", "1"}} {
		r := dial(t, addrs[0])
		r.ask("cmd=outrigger_abort rank=1 exitcode="+c[0]+" message=it said a=1 a=1", "cmd=outrigger_aborted rc=0")
		// A pod records as many aborts as it has ranks.
		if i < 2 {
			if got := watcher.hear(); got != "cmd=aborts rank=1 code="+c[1] {
				t.Errorf("%s: %q", c[0], got)
			}
		}
		mu.Lock()
		if got := heard[len(heard)-1]; got != "1 "+c[1] {
			t.Errorf("%s: %q", c[0], got)
		}
		mu.Unlock()
	}
	dial(t, addrs[0]).ask("cmd=outrigger_abort rank=2 exitcode=1", "") // a rank of the other pod
}

// TestRefusedTold checks that the job fails because of a rank of any pod whose MPI cannot
// use Outrigger, with its reason, and that the launchers of the reporting pod kill their
// ranks. A mistaken or hostile report has no effect.
func TestRefusedTold(t *testing.T) {
	var mu sync.Mutex
	var heard []string
	addrs := serve(t, func(c *Config) {
		c.Refused = func(rank int, text string) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, fmt.Sprint(rank, " ", text))
		}
	})
	watcher := dial(t, addrs[0])
	watcher.send("cmd=outrigger_aborts")
	for _, line := range []string{"rank=-1 message=x", "rank=3 message=x", "rank=? message=x", "message=x", "rank=1 message=", "rank=1"} {
		dial(t, addrs[0]).ask("cmd=outrigger_refused "+line, "")
	}
	dial(t, addrs[0]).ask("cmd=outrigger_refused rank=2 message=remove A=1\x1b[2J", "cmd=outrigger_refused rc=0")
	if got := watcher.hear(); got != "cmd=aborts rank=2 code=1" {
		t.Errorf("the launcher hears %q", got)
	}
	dial(t, addrs[0]).ask("cmd=outrigger_refused rank=1 message="+strings.Repeat("x", 2000), "cmd=outrigger_refused rc=0")
	mu.Lock()
	defer mu.Unlock()
	if len(heard) != 2 || heard[0] != "2 remove A=1 [2J" || len(heard[1]) > len("1 ")+refusedMax {
		t.Errorf("heard %q", heard)
	}
}
