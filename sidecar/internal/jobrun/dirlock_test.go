package jobrun

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSecondJobOfADirectoryIsRefused checks that a second job is refused with the other
// job's name, whatever path and registry it uses, and before a file of the first one is
// removed.
func TestSecondJobOfADirectoryIsRefused(t *testing.T) {
	s := set(t, quietSidecar, `exec sleep 1000`)
	dir := filepath.Join(t.TempDir(), "job")
	spec := func(dir string) *Spec {
		return &Spec{Name: "first", Ranks: 1, Pods: 1, Program: []string{"/bin/true"}, Dir: dir}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, err := Start(ctx, spec(dir), &s.out, &s.errOut)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(dir, "pod0", pidFile))
	if err != nil {
		t.Fatal(err)
	}
	home(t)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Symlink(dir, other); err != nil {
		t.Fatal(err)
	}
	_, err = Start(ctx, spec(other), &s.out, &s.errOut)
	want := fmt.Sprintf("job directory: %s is that of job first (process %d), which runs: wait for its end, or choose another directory", other, os.Getpid())
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if after, err := os.Stat(filepath.Join(dir, "pod0", pidFile)); err != nil || !os.SameFile(before, after) {
		t.Errorf("the first job's file was removed or replaced: %v", err)
	}
	cancel()
	_ = first.Wait(ctx, nil) // interrupted
	s.left()
	again, err := lockDir(dir, "again")
	if err != nil {
		t.Fatalf("after the first job's end: %v", err)
	}
	_ = again.Close() // opened by the test
}

// TestOneOfManyHasTheDirectory starts several jobs at one time.
func TestOneOfManyHasTheDirectory(t *testing.T) {
	dir := t.TempDir()
	const jobs = 16
	locks := make(chan *os.File, jobs)
	for i := range jobs {
		go func() {
			f, err := lockDir(dir, fmt.Sprint(i))
			if err != nil && !strings.Contains(err.Error(), "is that of ") {
				t.Error(err)
			}
			locks <- f
		}()
	}
	n := 0
	for range jobs {
		if f := <-locks; f != nil {
			n++
			defer func() { _ = f.Close() }() // opened by the test
		}
	}
	if n != 1 {
		t.Errorf("%d jobs have the lock", n)
	}
}

// TestDirectoryOfAKilledRun checks that a sidecar that outlives its `outrigger run` holds
// the directory until it ends, and that the next job waits for that.
func TestDirectoryOfAKilledRun(t *testing.T) {
	dir := t.TempDir()
	f, err := lockDir(dir, "killed")
	if err != nil {
		t.Fatal(err)
	}
	gone := exec.CommandContext(t.Context(), "/bin/true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	name, err := json.Marshal(owner{"killed", gone.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Name(), name, 0o600); err != nil {
		t.Fatal(err)
	}
	left := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read x; rm held")
	left.Dir, left.ExtraFiles = dir, []*os.File{f}
	in, err := left.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(dir, "held")
	if err := os.WriteFile(held, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	_ = f.Close() // as the kernel does for a killed process
	look, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(look.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		t.Error("the lock ended with the program that runs the job")
	}
	_ = look.Close() // only read
	_ = in.Close()   // ends it
	next, err := lockDir(dir, "next")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = next.Close() }() // of the test
	if _, err := os.Stat(held); err == nil {
		t.Error("the lock was taken while a process of the killed job ran")
	}
	if of := readOwner(next); of != (owner{"next", os.Getpid()}) {
		t.Errorf("the lock is that of %v", of)
	}
	_ = left.Wait() // it has ended
}
