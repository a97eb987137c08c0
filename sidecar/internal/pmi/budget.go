package pmi

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// Bounds of the bytes that this sidecar keeps for fences, and of those for meetings: heldPodMin
// to heldPodMax for one pod, depending on its ranks, and memory.LaunchBytes, from which the
// sidecar's memory is sized, for all pods together.
const (
	heldPodMin = 1 << 20
	heldPodMax = memory.LaunchPod
	heldStep   = 16 << 10 // the smallest number of bytes that read charges before it reads them, unless fewer are left
)

// budget counts and bounds the bytes that this sidecar keeps for pods: the server has one for
// fences, and Meetings another for meetings.
type budget struct {
	layout []int // the number of ranks of each pod
	most   int64

	mu    sync.Mutex // guards what follows
	bytes int64
	by    map[int]int64 // the bytes that are kept for each pod
}

func newBudget(layout []int) *budget {
	ranks := 0
	for _, n := range layout {
		ranks += n
	}
	return &budget{layout: layout, most: memory.LaunchBytes(ranks), by: map[int]int64{}}
}

// hold is the part of the budget that one connection uses.
type hold struct {
	budget *budget
	pod    int
	bytes  int64
}

func (b *budget) of(pod int) *hold { return &hold{budget: b, pod: pod} }

// grow charges more bytes, or returns an error if they exceed a bound.
func (h *hold) grow(bytes int64) error {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	ranks := 0
	if h.pod >= 0 && h.pod < len(b.layout) {
		ranks = b.layout[h.pod]
	}
	pod := min(max(int64(ranks)*fenceRankBytes, heldPodMin), heldPodMax)
	if b.by[h.pod]+bytes > pod || b.bytes+bytes > b.most {
		return fmt.Errorf("%d bytes of pod %d and %d of all pods are kept for fences and meetings under way, at most %d and %d may be; try again when others have ended", b.by[h.pod], h.pod, b.bytes, pod, b.most)
	}
	b.bytes += bytes
	b.by[h.pod] += bytes
	h.bytes += bytes
	return nil
}

// give returns all charged bytes to the budget.
func (h *hold) give() {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= h.bytes
	if b.by[h.pod] -= h.bytes; b.by[h.pod] == 0 {
		delete(b.by, h.pod)
	}
	h.bytes = 0
}

// read reads n bytes and charges them as they arrive, so that a connection that announces
// many bytes and sends none takes nothing from the others.
func (h *hold) read(in io.Reader, n int64) ([]byte, error) {
	var got []byte
	for int64(len(got)) < n {
		step := min(n-int64(len(got)), max(heldStep, int64(len(got))))
		if err := h.grow(step); err != nil {
			return nil, err
		}
		have := len(got)
		got = slices.Grow(got, int(step))[:have+int(step)]
		if _, err := io.ReadFull(in, got[have:]); err != nil {
			return nil, err
		}
	}
	return got, nil
}
