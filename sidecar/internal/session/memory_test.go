package session

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
	for what, c := range map[string]struct {
		files map[string]string
		free  uint64
		where string
	}{
		"no limit":     {map[string]string{"memory.max": "max\n", "memory.current": "4096\n"}, 8 << 20, "machine"},
		"version 2":    {map[string]string{"memory.max": "5000000\n", "memory.current": "4000000\n"}, 1000000, "limit"},
		"wide limit":   {map[string]string{"memory.max": "5000000000\n", "memory.current": "0\n"}, 8 << 20, "machine"},
		"version 1":    {map[string]string{"memory/memory.limit_in_bytes": "3000\n", "memory/memory.usage_in_bytes": "1000\n"}, 2000, "limit"},
		"all used up":  {map[string]string{"memory.max": "1000\n", "memory.current": "1000\n"}, 0, "limit"},
		"over the top": {map[string]string{"memory.max": "1000\n", "memory.current": "1001\n"}, 0, "limit"},
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
			free, where, err := availableMemory(filepath.Join(dir, "meminfo"), dir)
			if err != nil || free != c.free || !strings.Contains(where, c.where) {
				t.Errorf("%d bytes %q, %v; want %d bytes with %q", free, where, err, c.free, c.where)
			}
		})
	}
}

// TestReservationsAreNotPromisedTwice: of ten clients that want 100 bytes each
// at once on a machine with 460 to give, four get them, however they meet.
func TestReservationsAreNotPromisedTwice(t *testing.T) {
	var mu sync.Mutex
	used := uint64(0)
	r := newReservations(func() (uint64, string, error) {
		mu.Lock()
		defer mu.Unlock()
		return 460 - used, "in the test", nil
	})
	var wg sync.WaitGroup
	errs := make(chan error, 10)
	for range 10 {
		wg.Go(func() {
			settle, err := r.promise(100)
			if err == nil {
				mu.Lock()
				used += 100
				mu.Unlock()
				settle()
			}
			errs <- err
		})
	}
	wg.Wait()
	refused := 0
	for range 10 {
		if err := <-errs; err != nil {
			refused++
			if !errors.Is(err, segment.ErrNoMemory) || !strings.Contains(err.Error(), "100 bytes wanted") {
				t.Errorf("refused with %v", err)
			}
		}
	}
	if refused != 6 || r.promised != 0 {
		t.Errorf("%d refused, %d bytes still promised", refused, r.promised)
	}
}
