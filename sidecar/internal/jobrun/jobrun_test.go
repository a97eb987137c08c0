package jobrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

func TestMain(m *testing.M) {
	// The thread that forks lives as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun.init.0.func1"))
}

// Scripts in place of the two programs. $pod is the pod's number, $3 is the status pipe of
// a launcher.
const (
	quietSidecar  = `trap 'exit 0' TERM; while :; do sleep 0.01; done`
	quietLauncher = `exit 0`
)

// stage is a machine on which the two programs are scripts.
type stage struct {
	t           *testing.T
	tmp         string
	out, errOut bytes.Buffer
	job         *Job
	before      int
}

func set(t *testing.T, sidecar, launcher string) *stage {
	t.Helper()
	s := &stage{t: t, tmp: t.TempDir(), before: descriptors(t)}
	home(t)
	t.Setenv("TMPDIR", s.tmp)
	path := t.TempDir()
	for name, script := range map[string]string{"outrigger-sidecar": sidecar, "outrigger-launch": launcher} {
		if script == "" {
			continue
		}
		// Sidecars have --pod N as their third and fourth argument.
		text := "#!/bin/sh\npod=$4\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", path+":/usr/bin:/bin")
	return s
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// run runs a job to its end, and checks that no process or file of it is left.
func (s *stage) run(ctx context.Context, spec *Spec, report func([]obs.Report) error) error {
	s.t.Helper()
	if spec.Ranks == 0 {
		spec.Ranks, spec.Pods = 2, 2
	}
	if spec.Program == nil {
		spec.Program = []string{"/bin/true"}
	}
	var err error
	if s.job, err = Start(ctx, spec, &s.out, &s.errOut); err == nil {
		err = s.job.Wait(ctx, report)
	}
	s.left()
	return err
}

// left checks that no process or file of a job is left.
func (s *stage) left() {
	s.t.Helper()
	files, err := os.ReadDir(s.tmp)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(files) != 0 {
		s.t.Errorf("left in the temporary directory: %v", files)
	}
	if jobs, err := Jobs(); err != nil || len(jobs) != 0 {
		s.t.Errorf("left in the registry: %v, %v", jobs, err)
	}
	if s.job != nil {
		for _, c := range slices.Concat(s.job.sidecars, s.job.launches) {
			if alive := group(s.t, c.Process.Pid); len(alive) != 0 {
				s.t.Errorf("%s: processes %v live", c.Path, alive)
			}
		}
	}
	if after := descriptors(s.t); after > s.before {
		s.t.Errorf("%d descriptors afterwards, %d before", after, s.before)
	}
}

// group lists the living processes of a process group. A process that has ended and was not
// waited for is not alive.
func group(t *testing.T, id int) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var alive []string
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // no process, or it has ended
		}
		// The name in brackets, state, parent, group (proc_pid_stat(5)).
		f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if f[0] != "Z" && f[2] == fmt.Sprint(id) {
			alive = append(alive, e.Name())
		}
	}
	return alive
}

// fails runs a job that has to fail with a text and an exit code (0: the error is no
// Failure).
func (s *stage) fails(spec *Spec, want string, code int) {
	s.t.Helper()
	err := s.run(s.t.Context(), spec, nil)
	var f *Failure
	if err == nil || !strings.Contains(err.Error(), want) || errors.As(err, &f) != (code != 0) || f != nil && f.Code != code {
		s.t.Errorf("%v (%+v), want %q and code %d\n%s", err, f, want, code, s.errOut.String())
	}
}

func TestWellBehavedJob(t *testing.T) {
	s := set(t, quietSidecar, `echo "$@"; echo '{"event":"started","rank":0,"pid":1}' >&3; echo '{"event":"exited","rank":0}' >&3`)
	spec := &Spec{Name: "n", Ranks: 3, Pods: 2, Program: []string{"/bin/echo", "hi"}, Prefix: true, ArenaBytes: 1 << 20}
	if err := s.run(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--ranks 0-1 --status-fd 3 --prefix --grace 10s -- /bin/echo hi", "--ranks 2-2"} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("no launcher was given %q:\n%s", want, s.out.String())
		}
	}
	if p := s.job.Progress(); p.Started != 1 || p.Alive != 0 {
		t.Errorf("progress at the end: %+v", p)
	}
}

func TestMistakesAreFoundBeforeTheStart(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := set(t, quietSidecar, quietLauncher)
	for _, c := range []struct {
		spec Spec
		want string
		code int
	}{
		{Spec{Ranks: -1, Pods: 1}, "-1 ranks", 0},
		{Spec{Ranks: 5000, Pods: 1}, "5000 ranks: this machine can run 1 to 4096", 0},
		{Spec{Ranks: 2, Pods: 3}, "3 pods for 2 ranks: want 1 to 2", 0},
		{Spec{Ranks: 2, Pods: 0}, "0 pods for 2 ranks", 0},
		{Spec{LogLevel: "loud"}, "--sidecar-log loud: want debug, info, warn or error", 0},
		{Spec{Program: []string{}}, "no program to run", 0},
		{Spec{Program: []string{"/no/such/program"}}, "program /no/such/program: ", 127},
		{Spec{Program: []string{"no-such-program"}}, "program no-such-program: executable file not found", 127},
		{Spec{Program: []string{"no-such-program -x"}}, "program no-such-program -x: executable file not found in $PATH; its name has spaces in it, and no shell takes it apart: a command is a list of words, as in [no-such-program, -x]", 127},
		{Spec{Program: []string{"/no/such/program -x"}}, "program /no/such/program -x: no such file or directory; its name has spaces in it, and no shell takes it apart: a command is a list of words, as in [/no/such/program, -x]", 127},
		{Spec{Program: []string{plain}}, "permission denied", 126},
		{Spec{Program: []string{dir}}, "is a directory", 126},
		{Spec{Dir: filepath.Join(plain, "job")}, "job directory: ", 0},
		{Spec{Dir: filepath.Join(dir, strings.Repeat("d", 107-len(dir)-len("//pod0/sidecar.sock.run")+1))}, "d is too long for the paths of the sockets in it, by 1 B: choose a shorter one with --dir or TMPDIR", 0},
		{Spec{ArenaBytes: 1}, "memory.arenaBytes is 1", 0},
	} {
		s.fails(&c.spec, c.want, c.code)
	}
	if _, err := Start(t.Context(), &Spec{Ranks: 1, Pods: 1, Program: []string{"/bin/true"}, Dir: plain}, nil, nil); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("with a file as its directory: %v, want one line", err)
	}
	t.Setenv("TMPDIR", filepath.Join(dir, "missing"))
	if _, err := Start(t.Context(), &Spec{Ranks: 1, Pods: 1, Program: []string{"/bin/true"}}, nil, nil); err == nil || !strings.Contains(err.Error(), "job directory: ") {
		t.Errorf("without a temporary directory: %v", err)
	}
}

func TestMissingCompanions(t *testing.T) {
	for _, missing := range []string{"outrigger-sidecar", "outrigger-launch"} {
		sidecar, launcher := quietSidecar, quietLauncher
		if missing == "outrigger-sidecar" {
			sidecar = ""
		} else {
			launcher = ""
		}
		set(t, sidecar, launcher).fails(&Spec{}, missing+" is neither in this program's directory nor in PATH: build it with `make build`", 0)
	}
}

func TestProcessesThatFail(t *testing.T) {
	for what, c := range map[string]struct {
		sidecar, launcher, want string
		code                    int
	}{
		"sidecar at once": {`echo line >&2; echo "no good" >&2; exit 3`, `exec sleep 1000`, "ended: exit status 3: no good", 1},
		"sidecar of pod 1": {
			`[ $pod = 1 ] && { printf "half a line" >&2; exit 4; }; ` + quietSidecar, `exec sleep 1000`,
			"the sidecar of pod 1 (rank 1) ended: exit status 4: half a line", 1,
		},
		"sidecar crashes": {
			`printf "runtime/cgo: pthread_create failed: no more\nSIGABRT: abort\n\ngs     0x0\n" >&2; exit 2`, `exec sleep 1000`,
			"ended: exit status 2: runtime/cgo: pthread_create failed: no more", 1,
		},
		"sidecar ends well":   {`exit 0`, `exec sleep 1000`, "ended: exit status 0", 1},
		"sidecar killed":      {`kill -KILL $$`, `exec sleep 1000`, "ended: killed by SIGKILL", 1},
		"launcher":            {quietSidecar, `exit 5`, "the launcher of pod ", 1},
		"launcher killed":     {quietSidecar, `kill -SEGV $$`, "ended: killed by SIGSEGV", 1},
		"rank":                {quietSidecar, `echo '{"event":"failed","rank":1,"code":42,"time":"2020-01-01T00:00:00Z"}' >&3; exit 42`, "exited with code 42", 42},
		"rank by signal":      {quietSidecar, `echo '{"event":"failed","rank":1,"code":139,"signal":"SIGSEGV"}' >&3; exit 139`, "was killed by SIGSEGV", 139},
		"rank not started":    {quietSidecar, `echo '{"event":"failed","rank":1,"code":126,"reason":"it is a picture"}' >&3; exit 126`, "could not be started: it is a picture", 126},
		"garbage in the pipe": {quietSidecar, `echo 'what?' >&3; echo '{"event":"failed","rank":1,"code":7}' >&3; exit 7`, "exited with code 7", 7},
		"cannot be executed":  {"\x00", `exit 0`, "", 1},
	} {
		t.Run(what, func(t *testing.T) { set(t, c.sidecar, c.launcher).fails(&Spec{}, c.want, c.code) })
	}
}

// TestFirstFailureIsNamed checks that the first failure is named, however late its report
// is.
func TestFirstFailureIsNamed(t *testing.T) {
	s := set(t, quietSidecar, `case "$*" in
*"--ranks 0-0"*) echo '{"event":"failed","rank":0,"code":2,"time":"2026-01-01T00:00:02Z"}' >&3; exit 2;;
*) sleep 0.1; echo '{"event":"failed","rank":1,"code":3,"time":"2026-01-01T00:00:01Z"}' >&3; exit 3;;
esac`)
	s.fails(&Spec{}, "rank 1 (pod 1) exited with code 3", 3)
}

func TestTimeoutAndInterrupt(t *testing.T) {
	s := set(t, quietSidecar, `exec sleep 1000`)
	s.fails(&Spec{Timeout: 50 * time.Millisecond}, "not finished within 50ms", 124)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var f *Failure
	if err := s.run(ctx, &Spec{}, nil); !errors.As(err, &f) || f.Code != 130 {
		t.Errorf("interrupted: %v", err)
	}
	cancelled, cancelWith := context.WithCancelCause(t.Context())
	cancelWith(&Failure{Text: "for a reason", Code: 143})
	if err := s.run(cancelled, &Spec{}, nil); !errors.As(err, &f) || f.Code != 143 || f.Text != "for a reason" {
		t.Errorf("cancelled with a reason: %v", err)
	}
}

// TestDeafProcesses checks that a process that ignores SIGTERM is killed with all processes
// that it has started.
func TestDeafProcesses(t *testing.T) {
	deaf := `trap '' TERM; sleep 1000 & while :; do sleep 0.01; done`
	set(t, deaf, deaf).fails(&Spec{Timeout: 100 * time.Millisecond}, "not finished", 124)
}

func TestReportOfASilentSidecar(t *testing.T) {
	s := set(t, quietSidecar, quietLauncher)
	err := s.run(t.Context(), &Spec{}, func([]obs.Report) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "report of pod 0: ") {
		t.Errorf("%v, want the pod that did not answer", err)
	}
}

func TestDirectoryIsKept(t *testing.T) {
	s := set(t, quietSidecar, quietLauncher)
	dir := filepath.Join(t.TempDir(), "job")
	for range 2 { // the second job finds the directory of the first one
		if err := s.run(t.Context(), &Spec{Dir: dir}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bootstrap.json", "ca.pem", "pod0.pem", "pod1.key", "pod0/sidecar.pid"} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want a file for its owner alone", name, st, err)
		}
	}
}

func prepared(s *Spec) (*layout, error) { return prepare(s, s.document()) }

// TestKilledJobIsSweptUp checks that the next job removes the directory of a job whose
// program was killed, and no other.
func TestKilledJobIsSweptUp(t *testing.T) {
	s := set(t, quietSidecar, quietLauncher)
	temporary, err := prepared(&Spec{Ranks: 1, Pods: 1, Program: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	keep := &Spec{Name: "kept", Ranks: 1, Pods: 1, Program: []string{"x"}, Dir: filepath.Join(t.TempDir(), dirPrefix+"kept")}
	kept, err := prepared(keep)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := prepared(&Spec{Ranks: 1, Pods: 1, Program: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	running, err := register(&Spec{Name: "alive", Pods: 1}, alive)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*layout{temporary, kept} {
		r, err := register(&Spec{Pods: 1}, l)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.file.Close() // as the kernel does for a killed process
		l.closeListens()
		if err := l.unlock(); err != nil {
			t.Fatal(err)
		}
	}
	spec := &Spec{Ranks: 1, Pods: 1, Program: []string{"/bin/true"}}
	if err := Run(t.Context(), spec, &s.out, &s.errOut, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(temporary.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the killed job's directory: %v", err)
	}
	for _, l := range []*layout{kept, alive} {
		if _, err := os.Stat(l.document()); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(running.remove(), alive.remove()); err != nil {
		t.Fatal(err)
	}
	s.left()
}
