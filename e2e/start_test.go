package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
)

// good is a job document for two pods; %s is a directory with credentials.
const good = `{"version":1,"job":{"name":"j","id":"abc"},"ranks":2,"pods":[
 {"name":"a","address":"127.0.0.1:1","firstRank":0,"ranks":1},
 {"name":"b","address":"127.0.0.1:2","firstRank":1,"ranks":1}],
 "tls":{"caFile":"DIR/ca","certFile":"DIR/cert","keyFile":"DIR/key"}}`

// TestSidecarThatCannotStart checks that each mistake ends the sidecar at once, with an error
// that names the file and the field.
func TestSidecarThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	a, err := pki.New("abc", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.Leaf(0)
	if err != nil {
		t.Fatal(err)
	}
	document := strings.ReplaceAll(good, "DIR", dir)
	change := func(from, to string) string {
		if !strings.Contains(document, from) {
			t.Fatalf("%q is not in the document", from)
		}
		return strings.Replace(document, from, to, 1)
	}
	for name, raw := range map[string][]byte{"ca": a.CA(), "cert": leaf.Cert, "key": leaf.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path, socket := filepath.Join(dir, "bootstrap.json"), filepath.Join(dir, "s")
	for what, c := range map[string]struct {
		document string
		args     []string
		want     string
	}{
		"empty":            {" ", nil, path + ": bootstrap document: EOF"},
		"truncated":        {document[:len(document)/2], nil, path + ": bootstrap document: unexpected EOF"},
		"not JSON":         {"version: 1", nil, path + ": bootstrap document: invalid character"},
		"misspelt":         {change(`"ranks":2`, `"rank":2`), nil, `unknown field "rank"`},
		"another version":  {change(`"version":1`, `"version":7`), nil, "version is 7, want 1"},
		"too few ranks":    {change(`"ranks":2`, `"ranks":3`), nil, "pods have 2 ranks, ranks is 3"},
		"overlap":          {change(`"firstRank":1`, `"firstRank":0`), nil, "pods[1] has 1 ranks from 0, but rank 1 of 2 is next"},
		"same address":     {change(`127.0.0.1:2`, `127.0.0.1:1`), nil, "pods[1].address 127.0.0.1:1 is that of pods[0] too"},
		"no address":       {change(`127.0.0.1:2`, `there`), nil, `pods[1].address "there" is not host:port`},
		"arena":            {change(`"tls"`, `"memory":{"arenaBytes":1},"tls"`), nil, "memory.arenaBytes is 1"},
		"tuning":           {change(`"tls"`, `"tuning":{"wait":"nap"},"tls"`), nil, `tuning.wait is "nap"`},
		"no authority":     {change(dir+"/ca", dir+"/nothing"), nil, dir + "/nothing: no such file"},
		"key as authority": {change(dir+"/ca", dir+"/key"), nil, "no certificate in " + dir + "/key"},
		"key for another":  {change(dir+"/key", dir+"/ca"), nil, "pki: "},
		"no such pod":      {document, []string{"--pod", "2"}, "--pod 2: the document has pods 0 to 1"},
		"log level":        {document, []string{"--log-level", "loud"}, "--log-level"},
		"no document":      {"", []string{"--bootstrap", dir + "/none"}, "bootstrap: open " + dir + "/none: no such file"},
		"socket path":      {document, []string{"--socket", "/tmp/" + strings.Repeat("x", 120)}, "the system allows 107"},
		"socket directory": {document, []string{"--socket", dir + "/no/s"}, "listening on " + dir + "/no/s"},
		"metrics address":  {document, []string{"--metrics", "unix:" + dir + "/no/m"}, "--metrics: "},
		"no such socket":   {document, []string{"--listen", "fd:77"}, "fd:77 is no listening socket"},
		"no number":        {document, []string{"--listen", "fd:x"}, "fd:x: want fd:N"},
		"foreign address":  {document, []string{"--listen", "192.0.2.1:1"}, "listening for other sidecars: "},
	} {
		t.Run(what, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.document), 0o600); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"--bootstrap", path, "--pod", "0", "--socket", socket, "--listen", "127.0.0.1:0"}, c.args...)
			out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger-sidecar"), args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "goroutine") {
				t.Errorf("%v, want %q\n%s", err, c.want, out)
			}
			_ = os.Remove(socket) // of a sidecar that came that far
		})
	}
}

// TestLauncherThatCannotStart checks that the launcher's error names the wrong argument.
func TestLauncherThatCannotStart(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	for what, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no socket":    {[]string{"--ranks", "0", "--", "/bin/true"}, 1, `"socket" not set`},
		"no ranks":     {[]string{"--socket", socket, "--", "/bin/true"}, 1, "name the ranks by --ranks, or by all of"},
		"half a place": {[]string{"--socket", socket, "--pod", "0", "--world", "4", "--", "/bin/true"}, 1, "name the ranks by --ranks, or by all of"},
		"two places":   {[]string{"--socket", socket, "--ranks", "0", "--pod", "0", "--", "/bin/true"}, 1, "not by both"},
		"no such pod":  {[]string{"--socket", socket, "--pod", "2", "--ranks-per-pod", "2", "--world", "4", "--", "/bin/true"}, 1, "--pod 2: 4 ranks, 2 in a pod, fill the pods 0 to 1"},
		"last pod":     {[]string{"--socket", "/dev/null", "--pod", "1", "--ranks-per-pod", "3", "--world", "4", "--", "/bin/sh", "-c", "exit 5$OUTRIGGER_RANK"}, 53, "rank 3 exited with code 53"},
		"install":      {[]string{"install", "/dev/null/bin"}, 1, "install: mkdir /dev/null: not a directory"},
		"no program":   {[]string{"--socket", socket, "--ranks", "0"}, 1, "at least 1 arg"},
		"bad ranks":    {[]string{"--socket", socket, "--ranks", "3-1", "--", "/bin/true"}, 1, `--ranks "3-1": want FIRST-LAST, such as 4-7`},
		"no number":    {[]string{"--socket", socket, "--ranks", "a-b", "--", "/bin/true"}, 1, `--ranks "a-b"`},
		"negative":     {[]string{"--socket", socket, "--ranks=-1", "--", "/bin/true"}, 1, `--ranks "-1"`},
		"no sidecar":   {[]string{"--socket", socket, "--ranks", "0", "--wait", "50ms", "--", "/bin/true"}, 1, "no sidecar at " + socket + " within 50ms: is it running"},
		"no such file": {[]string{"--socket", "/dev/null", "--ranks", "0", "--", "/no/such/program"}, 127, "first failure in this pod: rank 0 could not be started: "},
		"no program's": {[]string{"--socket", "/dev/null", "--ranks", "0", "--", "/etc/passwd"}, 126, "permission denied"},
		"exit code":    {[]string{"--socket", "/dev/null", "--ranks", "0-1", "--", "/bin/sh", "-c", "exit 9"}, 9, "exited with code 9"},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger-launch"), c.args...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, want code %d and %q\n%s", what, err, c.code, c.want, out)
		}
	}
}

// TestRankCannotForge checks that ranks do not inherit the launcher's status pipe.
func TestRankCannotForge(t *testing.T) {
	j := start(t, 2, 1, "/bin/sh", "-c", `for fd in 3 4 5 6 7 8 9; do (echo '{"event":"failed","rank":0,"code":9}' >&$fd) 2>/dev/null && echo "wrote to $fd"; done; exit 0`)
	if code, out := j.wait(); code != 0 || strings.Contains(out, "wrote to") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestDaemonOfARank checks that a process that a rank has started ends with the job.
func TestDaemonOfARank(t *testing.T) {
	j := start(t, 2, 2, "/bin/sh", "-c", `setsid sleep 1000 & setsid sh -c 'trap "" TERM; while :; do sleep 1; done' & exit 0`)
	if code, out := j.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	j.left()
}

// TestRunKilled checks that all processes of a killed `outrigger run` end, and that the next
// one removes its directory.
func TestRunKilled(t *testing.T) {
	tmp, err := os.MkdirTemp("", "e2e-") //nolint:usetesting // socket paths are short; t.TempDir's need not be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) }) // a temporary directory
	run := func(program ...string) *exec.Cmd {
		args := append([]string{"run", "-n", "2", "--pods", "2", "--arena", "16", "--"}, program...)
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger"), args...)
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "XDG_RUNTIME_DIR=")
		return cmd
	}
	out := new(output)
	first := run(ring("-rounds", "1000000000")...)
	first.Stdout = out
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, out: out}
	j.waitFor(`rank 1 is process (\d+)`)
	if err := first.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // killed
	j.dir = tmp
	j.left()
	if dirs := leftBehind(t, tmp); len(dirs) != 1 {
		t.Fatalf("directories of the killed job: %q", dirs)
	}
	if text, err := run("/bin/true").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if dirs := leftBehind(t, tmp); len(dirs) != 0 {
		t.Errorf("left behind: %q", dirs)
	}
}

func leftBehind(t *testing.T, tmp string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(tmp, "outrigger-job-*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// TestReaderThatHasGone checks that a job whose output pipe was closed ends and cleans up.
func TestReaderThatHasGone(t *testing.T) {
	tmp := t.TempDir()
	line := fmt.Sprintf("TMPDIR=%s %s run -n 2 -- /bin/sh -c 'while echo line; do sleep 0.01; done' | head -n 3; echo ${PIPESTATUS[0]}", tmp, filepath.Join(bin, "outrigger"))
	out, err := exec.CommandContext(t.Context(), "/bin/bash", "-c", line).Output()
	if err != nil || !strings.HasSuffix(string(out), "\n141\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if dirs := leftBehind(t, tmp); len(dirs) != 0 {
		t.Errorf("left behind: %q", dirs)
	}
	(&job{t: t, dir: tmp}).left()
}
