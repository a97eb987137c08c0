package main

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/devices"
)

// TestThreads checks when a thread has a processor.
func TestThreads(t *testing.T) {
	for name, c := range map[string]struct{ tuning, processors, sharers, pods, want int }{
		"two ranks and a sidecar, two busy processors": {0, 2, 3, 1, 0},
		"a processor for each process, and none more":  {0, 3, 3, 1, 0},
		"one more":                           {0, 4, 3, 1, 1},
		"many more":                          {0, 64, 3, 1, 1},
		"one more for two sidecars":          {0, 7, 6, 2, 0},
		"one more for each of two sidecars":  {0, 8, 6, 2, 1},
		"a quota of less than one processor": {0, 0, 3, 1, 0},
		"forbidden":                          {-1, 64, 3, 1, 0},
		"demanded on a machine with two busy processors":    {1, 2, 3, 1, 1},
		"four demanded on a machine with processors enough": {4, 64, 3, 1, 4},
	} {
		if got := threads(c.tuning, c.processors, c.sharers, c.pods); got != c.want {
			t.Errorf("%s: %d threads, want %d", name, got, c.want)
		}
	}
}

// TestGrantedQueues checks that queues of a container are opened, and that the error of one
// that cannot be opened says what to do.
func TestGrantedQueues(t *testing.T) {
	list := []devices.Device{
		{Kind: "hca", Name: "mlx5_0", Files: []string{"/dev/infiniband/uverbs0"}},
		{Kind: "dsa", Name: "wq0.1", Files: []string{"/dev/dsa/wq0.1"}},
	}
	files, err := grantedQueues([]string{"HOME=/", devices.Env("outrigger.dev/dsa") + "=" + devices.Encode(list)})
	if err != nil || len(files) != 1 || files[0] != "/dev/dsa/wq0.1" {
		t.Fatalf("%q, %v", files, err)
	}
	if _, err := openQueues(files); err == nil || !strings.Contains(err.Error(), "wq0.1") {
		t.Errorf("a queue that is not there: %v", err)
	}
	if files, err := grantedQueues(nil); err != nil || files != nil {
		t.Errorf("without devices: %q, %v", files, err)
	}
}
