package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// runHostile runs a program as rank 1 of a job of four whose other ranks pass
// blocks round a ring.
func runHostile(t *testing.T, program string) *job {
	t.Helper()
	return start(t, 4, 2, "/bin/sh", "-c", fmt.Sprintf("[ $OUTRIGGER_RANK = 1 ] && exec %s\nexec %s -rounds 100000000 -bytes 4096", program, filepath.Join(bin, "ring")))
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestHostileClients checks that a client that violates the contract loses its session, that
// its job ends and prints the reason, and that another job on the machine is not affected.
func TestHostileClients(t *testing.T) {
	good := start(t, 4, 2, ring("-rounds", "300", "-pause", "20ms")...)
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			j := runHostile(t, self(t)+" "+hostileCommand+" "+name)
			code, out := j.wait()
			if code == 0 || !strings.Contains(out, lie.want) {
				t.Errorf("exit code %d, want a reason with %q\n%s", code, lie.want, out)
			}
			if !strings.Contains(out, "job failed: rank 1 (pod 0) ") {
				t.Errorf("the job does not name rank 1\n%s", out)
			}
			if strings.Contains(out, "hostile client:") || strings.Contains(out, "panic") || strings.Contains(out, "sidecar of pod") {
				t.Errorf("the sidecar did not do as it should\n%s", out)
			}
			j.left()
		})
	}
	if code, out := good.wait(); code != 0 || !strings.Contains(out, "every byte right") {
		t.Errorf("the other job: exit code %d\n%s", code, out)
	}
}

// TestDyingClients checks that a rank that dies is named, at whatever step it dies.
func TestDyingClients(t *testing.T) {
	for name := range deaths {
		t.Run(name, func(t *testing.T) {
			j := runHostile(t, self(t)+" "+hostileCommand+" "+name)
			code, out := j.wait()
			if code != 128+9 || !strings.Contains(out, "rank 1 (pod 0) was killed by SIGKILL") {
				t.Errorf("exit code %d\n%s", code, out)
			}
			j.left()
		})
	}
}

// TestExpelledLeaveNothing checks that a sidecar frees everything that it held for expelled
// clients.
func TestExpelledLeaveNothing(t *testing.T) {
	h := prepareHand(t, 32)
	h.start("--flight", h.dir+"/flight")
	pid := h.sidecars[0].Process.Pid
	t.Setenv(names.EnvSocket, h.socket(0))
	expel := func(rank int) {
		t.Setenv(names.EnvRank, strconv.Itoa(rank))
		c, err := attach(ownHello())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.push(shm.Descriptor{Op: 99}), c.end(), c.conn.Close()); err != nil {
			t.Fatal(err)
		}
	}
	held := func() (descriptors, segments int) {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(list), strings.Count(string(maps), "memfd:outrigger-")
	}
	for end := time.Now().Add(jobTime); ; time.Sleep(5 * time.Millisecond) {
		// The file is there before the socket listens.
		conn, err := net.Dial("unixpacket", h.socket(0))
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no sidecar: %v\n%s", err, h.out)
		}
	}
	expel(0)
	for end := time.Now().Add(jobTime); ; time.Sleep(5 * time.Millisecond) {
		raw, err := os.ReadFile(h.dir + "/flight")
		if err == nil && strings.Contains(string(raw), "failed") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no word of the failure in the flight recorder's file: %v\n%s", err, raw)
		}
	}
	before, _ := held()
	for rank := 1; rank < 32; rank++ {
		expel(rank)
	}
	for end := time.Now().Add(jobTime); ; time.Sleep(5 * time.Millisecond) {
		descriptors, segments := held()
		if descriptors <= before && segments == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d descriptors, %d before; %d segments still mapped", descriptors, before, segments)
		}
	}
}

// TestAbort checks that the rank that aborts the job is named, with its reason and code.
func TestAbort(t *testing.T) {
	code, out := runHostile(t, self(t)+" "+hostileCommand+" abort").wait()
	if code != 42 || !strings.Contains(out, "job failed: rank 1 (pod 0) ") || !strings.Contains(out, ": called abort: no sense in going on") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestDeafClient checks that a client that does not read its completions stops only itself:
// two other ranks continue to exchange messages, and the client gets all completions when it
// reads them.
func TestDeafClient(t *testing.T) {
	file := filepath.Join(t.TempDir(), "done")
	j := start(t, 3, 2, "/bin/sh", "-c", fmt.Sprintf("act=pair; [ $OUTRIGGER_RANK = 1 ] && act=deaf; exec %s %s $act %s", self(t), hostileCommand, file))
	code, out := j.wait()
	for _, want := range []string{"rank 0: every number right", "rank 2: every number right", "all answered"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
	if code != 0 || t.Failed() {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestWrongVersion checks that a client of another layout version is refused with both
// versions.
func TestWrongVersion(t *testing.T) {
	code, out := runHostile(t, self(t)+" "+hostileCommand+" greet").wait()
	if code != 1 || !strings.Contains(out, "refused: the client library speaks layout version 99, this sidecar version 1: use images of one release") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// left fails the test if processes of a job remain after its end.
func (j *job) left() {
	j.t.Helper()
	for end := time.Now().Add(jobTime); ; time.Sleep(10 * time.Millisecond) {
		alive := processes(j.t, j.dir)
		if len(alive) == 0 {
			return
		}
		if time.Now().After(end) {
			j.t.Fatalf("processes left: %q", alive)
		}
	}
}

// processes lists the command lines that contain text, and those of processes
// with text in their environment, as ranks have.
func processes(t *testing.T, text string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || e.Name() == fmt.Sprint(os.Getpid()) {
			continue // no process
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")) // another user's, or it has ended
		if strings.Contains(string(line), text) || strings.Contains(string(env), text) {
			list = append(list, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return list
}
