package launch

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGroupIsKilledBeforeItsLeaderIsGone checks that while a process group is killed by its
// number, the number is still that of the rank, which has ended and was not waited for.
func TestGroupIsKilledBeforeItsLeaderIsGone(t *testing.T) {
	r := prepare(t, 7, "sleep 1000 & exit 0")
	var mu sync.Mutex
	killed := 0
	r.Config.killGroup = func(id int) {
		mu.Lock()
		killed++
		mu.Unlock()
		var ended siginfo
		err := unix.Waitid(unix.P_PID, id, ended.info(), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != nil || ended.pid() != id {
			t.Errorf("group %d is killed when its leader is gone: %v", id, err)
		}
		killGroup(id)
	}
	if e := r.run(t.Context()); e != nil {
		t.Error(e.Text())
	}
	if killed != 4 {
		t.Errorf("%d groups were killed, want 4", killed)
	}
}
