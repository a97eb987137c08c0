package wake

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCPU: a thread that may run on one processor only is there.
func TestCPU(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for cpu := range len(all) * 64 {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Fatal(err)
		}
		if got := CPU(); got != cpu {
			t.Errorf("on processor %d, want %d", got, cpu)
		}
		seen++
	}
	if seen == 0 {
		t.Errorf("no processor among %v", all)
	}
}

// TestThreadTime counts what the thread does.
func TestThreadTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := ThreadTime()
	if begin <= 0 {
		t.Fatalf("a thread that runs has used %v", begin)
	}
	for ThreadTime() == begin { // without end if it stood still
	}
}
