//go:build cluster

package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/memory"
)

// programs builds what a job on this machine needs, and the example ring.
func programs(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/",
		"../../sidecar/cmd/outrigger", "../../sidecar/cmd/outrigger-sidecar", "../../sidecar/cmd/outrigger-launch", "../../clientlib/examples/ring")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// TestJobInALimitedGroup checks that, in a control group with a limit, a job whose arenas do
// not fit is refused before a rank starts, with the sum, the available memory, and an arena
// that fits; that a job with this arena runs; that the default arena follows the limit; and
// that the kernel kills no process.
func TestJobInALimitedGroup(t *testing.T) {
	const limit, ranks, pods = 1 << 30, 4, 2
	bin, in := programs(t), group(t, limit)
	run := func(flags ...string) (string, *bootstrap.Document, error) {
		dir, err := os.MkdirTemp("", "job-") //nolint:usetesting // socket paths are short
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, in,
			filepath.Join(bin, "outrigger"), "run", "-n", fmt.Sprint(ranks), "--pods", fmt.Sprint(pods), "--dir", dir)
		cmd.Args = append(append(cmd.Args, flags...), "--", "/bin/sh", "-c", `echo has started; exec "$0"`, filepath.Join(bin, "ring"))
		out, err := cmd.CombinedOutput()
		var doc bootstrap.Document
		if raw, read := os.ReadFile(filepath.Join(dir, "bootstrap.json")); !errors.Is(read, fs.ErrNotExist) {
			if read = errors.Join(read, json.Unmarshal(raw, &doc)); read != nil {
				t.Fatal(read)
			}
		}
		return string(out), &doc, err
	}

	said, _, err := run("--arena", "512MiB")
	refusal := regexp.MustCompile(`not enough memory: 4 ranks in 2 pods take ([\d.]+ [MG]iB) when they start, each rank 512 MiB of its arena .*; ([\d.]+ [MG]iB) available within the container's limit.*: use an arena of (\d+MiB) or less \(--arena`)
	words := refusal.FindStringSubmatch(said)
	if err == nil || words == nil || strings.Contains(said, "has started") {
		t.Fatalf("%v; it does not say %s before ranks start\n%s", err, refusal, said)
	}
	sum, available, fits := bytesOf(t, words[1]), bytesOf(t, words[2]), bytesOf(t, words[3])
	if sum < ranks*512<<20 || available > limit || available < limit/2 || fits*ranks >= available {
		t.Errorf("they take %d bytes, %d are available, and arenas of %d bytes fit\n%s", sum, available, fits, said)
	}
	if said, _, err := run("--arena", words[3]); err != nil {
		t.Errorf("an arena of %s: %v\n%s", words[3], err, said)
	}

	said, doc, err := run()
	if arena := doc.Memory.ArenaBytes; err != nil || strings.Count(said, "has started") != ranks || arena <= 0 || arena >= memory.ArenaDefault || arena*ranks >= limit {
		t.Errorf("%v; the arena by default is %d bytes\n%s", err, arena, said)
	}
	if n := killed(t, in); n != "0" {
		t.Errorf("the kernel has killed %s processes for memory", n)
	}
}

// bytesOf parses a size as the runner prints it.
func bytesOf(t *testing.T, text string) int64 {
	t.Helper()
	n, err := memory.Parse(strings.ReplaceAll(text, " ", ""), 1)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// killed returns how many processes of a group the kernel has killed for memory.
func killed(t *testing.T, group string) string {
	t.Helper()
	for _, file := range []string{"memory.events", "memory.oom_control"} {
		raw, err := os.ReadFile(filepath.Join(group, file))
		if err != nil {
			continue // of the other version
		}
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
				return f[1]
			}
		}
	}
	t.Fatalf("%s counts no kills", group)
	return ""
}
