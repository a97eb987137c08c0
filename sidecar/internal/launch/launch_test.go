package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is when a test counts as hung.
const timeout = 30 * time.Second

func wait(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// output is what ranks print.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// trial is a run of a shell script as ranks 4 to last.
type trial struct {
	Config
	out, errOut, status output
	before              int
	t                   *testing.T
}

func prepare(t *testing.T, last int, script string) *trial {
	t.Helper()
	r := &trial{t: t, before: descriptors(t)}
	r.Config = Config{
		Socket: "/run/s", First: 4, Last: last, Program: []string{"/bin/sh", "-c", script},
		Out: &r.out, Err: &r.errOut, Status: &r.status,
	}
	return r
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// run runs the trial to its end, and checks that no process and no descriptor is left.
func (r *trial) run(ctx context.Context) *Event {
	r.t.Helper()
	e := Run(ctx, r.Config)
	if left := children(); len(left) != 0 {
		r.t.Errorf("processes left: %v", left)
	}
	if after := descriptors(r.t); after > r.before {
		r.t.Errorf("%d descriptors afterwards, %d before", after, r.before)
	}
	return e
}

// events returns the status lines.
func (r *trial) events() []Event {
	r.t.Helper()
	var list []Event
	for line := range strings.Lines(r.status.String()) {
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.t.Fatalf("status line %q: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

func (r *trial) count(event string) int {
	n := 0
	for _, e := range r.events() {
		if e.Event == event {
			n++
		}
	}
	return n
}

func TestEnvironmentAndStatus(t *testing.T) {
	r := prepare(t, 6, `echo "$OUTRIGGER_SOCKET $OUTRIGGER_RANK $EXTRA"`)
	r.Env, r.Prefix = []string{"EXTRA=more"}, true
	if e := r.run(t.Context()); e != nil {
		t.Fatal(e.Text())
	}
	lines := strings.Split(strings.TrimSpace(r.out.String()), "\n")
	slices.Sort(lines)
	want := []string{"[4] /run/s 4 more", "[5] /run/s 5 more", "[6] /run/s 6 more"}
	if !slices.Equal(lines, want) {
		t.Errorf("output %q, want %q", lines, want)
	}
	if r.count("started") != 3 || r.count("exited") != 3 || r.count("failed") != 0 {
		t.Errorf("status:\n%s", r.status.String())
	}
	for _, e := range r.events() {
		if e.Time.IsZero() || e.Rank < 4 || e.Rank > 6 || (e.Event == "started") != (e.PID > 0) {
			t.Errorf("event %+v", e)
		}
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	script := filepath.Join(dir, "script")
	for name, text := range map[string]string{plain: "text", script: "#!/no/such/interpreter\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(script, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for _, c := range []struct {
		program []string
		code    int
		text    string
	}{
		{[]string{"/bin/sh", "-c", "exit 3"}, 3, "exited with code 3"},
		{[]string{"/bin/sh", "-c", "exit 255"}, 255, "exited with code 255"},
		{[]string{"/bin/sh", "-c", "kill -TERM $$"}, 128 + 15, "was killed by SIGTERM"},
		{[]string{"/bin/sh", "-c", "kill -KILL $$"}, 128 + 9, "was killed by SIGKILL"},
		{[]string{"/bin/sh", "-c", "kill -SEGV $$"}, 128 + 11, "was killed by SIGSEGV"},
		{[]string{"/no/such/program"}, 127, "could not be started: "},
		{[]string{"no-such-program-anywhere"}, 127, "could not be started: "},
		{[]string{"/no/such/program -class S cg"}, 127, "a command is a list of words, as in [/no/such/program, -class, S, cg]"},
		{[]string{plain}, 126, "could not be started: "},
		{[]string{dir}, 126, "could not be started: "},
		{[]string{script}, 126, "could not be started: "},
	} {
		r := prepare(t, 4, "")
		r.Program = c.program
		told := 0
		r.Failed = func(rank, code int) { told = 1000*rank + code }
		e := r.run(t.Context())
		if told != 4000+c.code {
			t.Errorf("%q: the sidecar was told of rank and code %d, want 4 and %d", c.program, told, c.code)
		}
		if e == nil || e.Code != c.code || !strings.Contains(e.Text(), c.text) || e.Rank != 4 || e.Event != "failed" {
			t.Errorf("%q: %+v, want code %d and %q", c.program, e, c.code, c.text)
		}
		if r.count("failed") != 1 {
			t.Errorf("%q: status\n%s", c.program, r.status.String())
		}
	}
}

// TestFirstFailure checks that the other ranks are ended by SIGTERM, and that the first
// failure counts.
func TestFirstFailure(t *testing.T) {
	dir := t.TempDir()
	r := prepare(t, 7, `cd `+dir+`
		trap 'echo polite; exit 9' TERM
		: > up.$OUTRIGGER_RANK
		while [ "$(echo up.*)" != "up.4 up.5 up.6 up.7" ]; do sleep 0.01; done
		[ $OUTRIGGER_RANK = 6 ] && exit 42
		while :; do sleep 0.01; done`)
	e := r.run(t.Context())
	if e == nil || e.Rank != 6 || e.Code != 42 {
		t.Fatalf("first failure %+v\n%s", e, r.status.String())
	}
	if got := strings.Count(r.out.String(), "polite"); got != 3 {
		t.Errorf("%d ranks could say goodbye, want 3:\n%s", got, r.status.String())
	}
}

// TestEarliestFailureCounts checks that the earliest failure counts, in whatever order they
// are noticed.
func TestEarliestFailureCounts(t *testing.T) {
	p := newPod(Config{Out: io.Discard, Err: io.Discard})
	now := time.Now()
	for _, k := range []int{2, 1, 3} {
		p.fail(&Event{Rank: k, Time: now.Add(time.Duration(k) * time.Second)})
	}
	if p.first.Rank != 1 {
		t.Errorf("rank %d counts as the first to fail, want 1", p.first.Rank)
	}
}

// TestStubbornRank checks that a rank that ignores SIGTERM gets SIGKILL.
func TestStubbornRank(t *testing.T) {
	r := prepare(t, 5, `[ $OUTRIGGER_RANK = 5 ] && { trap '' TERM; echo deaf; while :; do sleep 0.01; done; }
		while [ ! -e "`+filepath.Join(t.TempDir(), "go")+`" ]; do sleep 0.01; done; exit 1`)
	r.Grace = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		wait(t, "the deaf rank", func() bool { return strings.Contains(r.out.String(), "deaf") })
		cancel()
	}()
	r.run(ctx)
	for _, e := range r.events() {
		if e.Rank == 5 && e.Event == "failed" && e.Signal != "SIGKILL" {
			t.Errorf("the deaf rank %s", e.Text())
		}
	}
	if r.count("failed") != 2 {
		t.Errorf("status:\n%s", r.status.String())
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	signals := make(chan os.Signal, 1)
	r := prepare(t, 5, `trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.01; done`)
	r.Signals = signals
	go func() {
		wait(t, "both ranks", func() bool { return strings.Count(r.out.String(), "ready") == 2 })
		signals <- unix.SIGUSR1
	}()
	if e := r.run(t.Context()); e != nil {
		t.Errorf("%s", e.Text())
	}
	if got := strings.Count(r.out.String(), "got it"); got != 2 {
		t.Errorf("%d ranks got the signal, want 2", got)
	}
}

// TestUserSignalsAreForTheRankAlone checks that a user signal is sent to the rank only:
// processes that it has started in its process group may not handle it.
func TestUserSignalsAreForTheRankAlone(t *testing.T) {
	signals := make(chan os.Signal, 2)
	r := prepare(t, 5, `trap 'echo got 1' USR1; trap 'echo got 2; kill $h; exit 0' USR2
		sh -c 'trap "echo helper" USR1 USR2; while :; do sleep 0.01; done' & h=$!
		echo ready; while :; do sleep 0.01; done`)
	r.Signals = signals
	go func() {
		wait(t, "both ranks", func() bool { return strings.Count(r.out.String(), "ready") == 2 })
		signals <- unix.SIGUSR1
		wait(t, "the first signal", func() bool { return strings.Count(r.out.String(), "got 1") == 2 })
		signals <- unix.SIGUSR2
	}()
	if e := r.run(t.Context()); e != nil {
		t.Errorf("%s", e.Text())
	}
	if s := r.out.String(); strings.Count(s, "got") != 4 || strings.Contains(s, "helper") {
		t.Errorf("signals: %q", s)
	}
}

// TestSecondOrderEndsTheGrace checks that a second request to end kills ranks that ignore
// the first one.
func TestSecondOrderEndsTheGrace(t *testing.T) {
	signals := make(chan os.Signal, 1)
	r := prepare(t, 5, `trap 'echo deaf' TERM; echo ready; while :; do sleep 0.01; done`)
	r.Signals, r.Grace = signals, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		wait(t, "both ranks", func() bool { return strings.Count(r.out.String(), "ready") == 2 })
		cancel()
		wait(t, "the first order", func() bool { return strings.Count(r.out.String(), "deaf") == 2 })
		signals <- unix.SIGKILL
	}()
	if e := r.run(ctx); e == nil || !e.Told || e.Signal != "SIGKILL" {
		t.Errorf("first failure: %+v", e)
	}
}

// TestNothingIsLeftBehind checks that neither the processes that a rank leaves in its
// group, nor those that have left the group, outlive the pod, or delay it by keeping its
// output open (run checks the processes).
func TestNothingIsLeftBehind(t *testing.T) {
	for what, leave := range map[string]string{
		"in the group":   `sleep 1000 &`,
		"daemon":         `setsid sleep 1000 &`,
		"daemons' child": `setsid sh -c 'sleep 1000 & setsid sleep 1000 & sleep 1000' &`,
		"deaf daemon":    `setsid sh -c 'trap "" TERM HUP; while :; do sleep 1; done' &`,
	} {
		for _, code := range []int{0, 3} {
			r := prepare(t, 4, fmt.Sprintf("%s\necho $!; exit %d", leave, code))
			e := r.run(t.Context())
			if (e == nil) != (code == 0) || e != nil && e.Code != code {
				t.Errorf("%s, exit code %d: %+v", what, code, e)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(r.out.String()))
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(pid, 0); err == nil {
				t.Errorf("%s, exit code %d: process %d lives", what, code, pid)
			}
		}
	}
}

// TestAdoptedAreReaped checks that the orphans of a running rank do not stay zombies until
// the end.
func TestAdoptedAreReaped(t *testing.T) {
	stop := filepath.Join(t.TempDir(), "stop")
	r := prepare(t, 4, `for i in 1 2 3; do (sleep 0.05 &); done; echo made; while [ ! -e `+stop+` ]; do sleep 0.01; done`)
	go func() {
		wait(t, "the orphans", func() bool { return strings.Contains(r.out.String(), "made") && len(children()) > 1 })
		wait(t, "the orphans to be taken away", func() bool { return len(children()) == 1 })
		if err := os.WriteFile(stop, nil, 0o600); err != nil {
			t.Error(err)
		}
	}()
	if e := r.run(t.Context()); e != nil {
		t.Error(e.Text())
	}
}

func TestLongLines(t *testing.T) {
	r := prepare(t, 4, `head -c 150000 /dev/zero | tr '\0' x; echo; printf 'no end'; printf 'to both\n' >&2`)
	r.Prefix = true
	if e := r.run(t.Context()); e != nil {
		t.Fatal(e.Text())
	}
	if want := "[4] " + strings.Repeat("x", 150000) + "\n[4] no end"; r.out.String() != want {
		t.Errorf("%d bytes that end with %.20q, want %d", len(r.out.String()), r.out.String()[max(0, len(r.out.String())-20):], len(want))
	}
	if r.errOut.String() != "[4] to both\n" {
		t.Errorf("standard error %q", r.errOut.String())
	}
}

// TestLinesAreWhole checks that ranks that print at once do not split each other's lines.
func TestLinesAreWhole(t *testing.T) {
	r := prepare(t, 11, `i=0; while [ $i -lt 200 ]; do printf "line %d of "  $i; echo "rank $OUTRIGGER_RANK."; i=$((i+1)); done`)
	r.Prefix = true
	if e := r.run(t.Context()); e != nil {
		t.Fatal(e.Text())
	}
	next := map[int]int{}
	for line := range strings.Lines(r.out.String()) {
		var prefix, n, rank int
		if _, err := fmt.Sscanf(line, "[%d] line %d of rank %d.\n", &prefix, &n, &rank); err != nil || prefix != rank {
			t.Fatalf("line %q: %v", line, err)
		}
		if n != next[rank] {
			t.Fatalf("rank %d: line %d after %d", rank, n, next[rank]-1)
		}
		next[rank]++
	}
	if len(next) != 8 {
		t.Errorf("lines of %d ranks, want 8", len(next))
	}
}

// TestLost checks that a rank because of which the job has failed, and that lives on, is
// ended as a rank that is told to end, also if it exits with code 0 then, and that the
// other ranks are ended with it.
func TestLost(t *testing.T) {
	for how, want := range map[string]string{
		"":                    "was killed by SIGTERM",
		`trap "" TERM;`:       "was killed by SIGKILL",
		`trap "exit 0" TERM;`: "exited with code 143",
		`trap "exit 9" TERM;`: "exited with code 9",
	} {
		r := prepare(t, 5, how+` echo up; while :; do sleep 0.05; done`)
		r.Grace = 200 * time.Millisecond
		r.Aborts = func(ctx context.Context, told func(rank, code int, lost bool)) {
			for strings.Count(r.out.String(), "up") < 2 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			told(r.First+1, 1, true)
			told(r.First+1, 1, false)
			<-ctx.Done()
		}
		e := r.run(t.Context())
		if e == nil || e.Rank != r.First+1 || e.Code == 0 || !e.Told || e.Text() != want || e.Failure().Reason != podlife.Terminated {
			t.Errorf("%q: %+v, %v; want %q", how, e, e.Text(), want)
		}
	}
}

// TestAborts checks that a rank that calls abort, and waits to be ended, is ended, also if
// it ignores SIGTERM, and that its code is reported and not how it was ended.
func TestAborts(t *testing.T) {
	for _, deaf := range []string{"", `trap "" TERM;`} {
		r := prepare(t, 5, deaf+` echo up; while :; do sleep 0.05; done`)
		r.Grace = 100 * time.Millisecond
		r.Aborts = func(ctx context.Context, told func(rank, code int, lost bool)) {
			for strings.Count(r.out.String(), "up") < 2 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			told(99, 3, false) // a rank of another launcher
			told(r.First+1, 7, false)
			told(r.First+1, 8, false)
			told(r.First+1, 1, true)
			<-ctx.Done()
		}
		e := r.run(t.Context())
		if e == nil || e.Rank != r.First+1 || e.Code != 7 || e.Told || e.Text() != "called abort with code 7" {
			t.Errorf("%q: %+v", deaf, e)
		}
	}
}
