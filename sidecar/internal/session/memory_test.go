package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// mappings counts the shared segments that this process has mapped.
func mappings(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(raw), "memfd:outrigger-")
}

func TestAvailableMemory(t *testing.T) {
	const machine = 8<<20 - (8<<20)/10 // the machine keeps some
	for what, c := range map[string]struct {
		files map[string]string
		free  uint64
		where string
	}{
		"no limit":       {map[string]string{"memory.max": "max\n", "memory.current": "4096\n"}, machine, "machine"},
		"no limit in v1": {map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.usage_in_bytes": "1000\n"}, machine, "machine"},
		"version 2":      {map[string]string{"memory.max": "5000000\n", "memory.current": "4000000\n"}, 1000000, "limit"},
		"wide limit":     {map[string]string{"memory.max": "5000000000\n", "memory.current": "0\n"}, 8 << 20, "machine"},
		"version 1":      {map[string]string{"memory/memory.limit_in_bytes": "3000\n", "memory/memory.usage_in_bytes": "1000\n"}, 2000, "limit"},
		"all used up":    {map[string]string{"memory.max": "1000\n", "memory.current": "1000\n"}, 0, "limit"},
		"over the top":   {map[string]string{"memory.max": "1000\n", "memory.current": "1001\n"}, 0, "limit"},
		"file cache":     {map[string]string{"memory.max": "5000\n", "memory.current": "4000\n", "memory.stat": "anon 1000\nfile 3000\nshmem 1000\n"}, 3000, "limit"},
		"group below": {map[string]string{
			"cgroup": "1:name=systemd:/\n0::/user.slice/job.scope\n", "user.slice/job.scope/memory.max": "2000\n", "user.slice/job.scope/memory.current": "500\n",
			"memory.max": "9000\n", "memory.current": "800\n",
		}, 1500, "limit"},
		"group above": {map[string]string{
			"cgroup": "4:cpu,memory:/a/b\n", "memory/a/b/memory.limit_in_bytes": "9000\n", "memory/a/b/memory.usage_in_bytes": "500\n",
			"memory/a/memory.limit_in_bytes": "1000\n", "memory/a/memory.usage_in_bytes": "700\n",
		}, 300, "limit"},
		"group that is not mounted": {map[string]string{"cgroup": "0::/outside\n", "memory.max": "3000\n", "memory.current": "1000\n"}, 2000, "limit"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			c.files["meminfo"] = "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n"
			for name, text := range c.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			all, err := availableMemory(filepath.Join(dir, "meminfo"), filepath.Join(dir, "cgroup"), dir)
			if err != nil {
				t.Fatal(err)
			}
			r := newReservations(0, 0, nil)
			tight := r.tightest(all)
			if free := r.room(tight); free != c.free || !strings.Contains(tight.where, c.where) {
				t.Errorf("%d bytes %q; want %d bytes with %q", free, tight.where, c.free, c.where)
			}
		})
	}
}

// TestEveryRankFits checks that in a control group with the limit that the operator sets,
// all ranks of a pod get their memory, whatever the size of the arena, and not one rank
// more.
func TestEveryRankFits(t *testing.T) {
	for _, mib := range []int64{1, 64, 256, 650, 1 << 10, 8 << 10} {
		for _, ranks := range []int{1, 2, 16, 128} {
			t.Run(fmt.Sprintf("%d ranks of %d MiB", ranks, mib), func(t *testing.T) {
				s := memory.Sizes{Arena: mib << 20, Slab: memory.SlabDefault, Credit: memory.CreditDefault}
				limit := uint64(s.Need(ranks, 4*ranks, 4))
				own := uint64(s.Own(ranks, 4*ranks, 4))
				used := own / 2 // part of its own needs that the sidecar has used so far
				r := newReservations(own, 0, func() ([]pool, error) {
					return []pool{{limit: limit, used: used, group: true, where: "in the test"}}, nil
				})
				for rank := range ranks {
					p, err := r.promise(uint64(s.Rank()), false)
					if err != nil {
						t.Fatalf("rank %d: %v", rank, err)
					}
					pages := uint64(segment.DefaultGeometry.Bytes()) + uint64(s.Arena)
					used += pages + pages*18/4096
					p.settle()
				}
				if used+own/2 > limit {
					t.Errorf("%d bytes are used of %d", used+own/2, limit)
				}
				if _, err := r.promise(uint64(s.Rank()), false); !errors.Is(err, segment.ErrNoMemory) || !strings.Contains(err.Error(), "raise the limit") {
					t.Errorf("one rank more: %v", err)
				}
			})
		}
	}
}

// TestReservationsAreNotPromisedTwice checks that of ten clients that request 100 bytes
// each at once, on a machine with 460 bytes, four get them in any order, and that memory
// given back is available to another one.
func TestReservationsAreNotPromisedTwice(t *testing.T) {
	for _, group := range []bool{false, true} {
		var mu sync.Mutex
		used := uint64(0)
		r := newReservations(0, 0, func() ([]pool, error) {
			mu.Lock()
			defer mu.Unlock()
			return []pool{{limit: 460, used: used, group: group, where: "in the test"}}, nil
		})
		var wg sync.WaitGroup
		errs, kept := make(chan error, 10), make(chan *promise, 10)
		for range 10 {
			wg.Go(func() {
				p, err := r.promise(100, false)
				if err == nil {
					mu.Lock()
					used += 100
					mu.Unlock()
					p.settle()
					kept <- p
				}
				errs <- err
			})
		}
		wg.Wait()
		refused := 0
		for range 10 {
			if err := <-errs; err != nil {
				refused++
				if !errors.Is(err, segment.ErrNoMemory) || !strings.Contains(err.Error(), "100 B wanted") {
					t.Errorf("refused with %v", err)
				}
			}
		}
		if refused != 6 || r.moving != 0 || r.held != 400 {
			t.Errorf("%d refused, %d bytes still being reserved, %d held", refused, r.moving, r.held)
		}
		(<-kept).release()
		used -= 100
		if _, err := r.promise(100, false); err != nil {
			t.Errorf("what was given back: %v", err)
		}
	}
}
