//go:build mpi

package mpi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sharedMax bounds the memory that a sidecar shares with a rank that has only started its MPI: slab,
// rings, and the first pieces of the arena (docs/mpijob-reference.md, Memory of the sidecar). A whole
// arena would be 256 MiB.
const sharedMax = 6 << 20

// TestMemoryOfIdleRanks checks that ranks that only call MPI_Init and MPI_Barrier, with arenas of the
// default size, use a few MiB each.
func TestMemoryOfIdleRanks(t *testing.T) {
	const ranks, pods = 16, 2
	for _, m := range []implementation{openmpi4(t), mpich(t)} {
		t.Run(m.name, func(t *testing.T) {
			program, p := m.build(t, "held"), startPodsWithArenas(t, 256<<20, ranks/pods, ranks/pods)
			over := filepath.Join(t.TempDir(), "over")
			var launchers []*rank
			for i := range pods {
				line := append([]string{"env"}, m.env...)
				line = append(line, at(t, "outrigger-launch"), "--socket", p.socket(i), "--ranks", fmt.Sprintf("%d-%d", i*ranks/pods, (i+1)*ranks/pods-1), "--mpi", "auto", "--", program, over)
				launchers = append(launchers, p.start(i, i, line...))
			}
			p.await("ranks that are in their program", func() bool {
				return strings.Count(launchers[0].says()+launchers[1].says(), "held\n") == ranks
			})
			var shared, private int64
			for i := range pods {
				s, own := p.memory(i)
				shared, private = shared+s, private+own
			}
			t.Logf("shared %d KiB, private to the sidecars %d KiB a rank", shared>>10/ranks, private>>10/ranks)
			if shared == 0 || shared > ranks*sharedMax {
				t.Errorf("%d ranks share %d MiB with their sidecars, want at most %d", ranks, shared>>20, ranks*sharedMax>>20)
			}
			if err := os.WriteFile(over, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, l := range launchers {
				if code := l.end(); code != 0 {
					t.Errorf("exit code %d\n%s", code, l.says())
				}
			}
		})
	}
}

// memory returns the allocated bytes of the memory files that a sidecar shares with its ranks, and
// the bytes of its private memory.
func (p *pods) memory(pod int) (shared, private int64) {
	p.t.Helper()
	proc := fmt.Sprintf("/proc/%d", p.sidecars[pod].Process.Pid)
	open, err := os.ReadDir(proc + "/fd")
	if err != nil {
		p.t.Fatal(err)
	}
	seen := map[uint64]bool{}
	for _, e := range open {
		var st unix.Stat_t
		path := filepath.Join(proc, "fd", e.Name())
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:outrigger-") || unix.Stat(path, &st) != nil || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		shared += st.Blocks * 512
	}
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			private = kib << 10
		}
	}
	return shared, private
}
