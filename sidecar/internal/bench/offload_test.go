package bench

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
)

// TestOffload measures an engine that is the calling thread itself, which cannot win against
// itself, and one that cannot be opened.
func TestOffload(t *testing.T) {
	var r OffloadResult
	for range 20 { // a measurement ends early if other work has the processors
		r = Offload(OffloadEngine{Name: "cpu", Open: func() (copyeng.Channel, error) { return new(copyeng.CPU), nil }}, 3)
		if !strings.Contains(r.Error, "took longer") {
			break
		}
	}
	if r.Threshold != 0 || r.Error != "" || len(r.Rows) != 2*len(offloadSizes) {
		t.Fatalf("%+v", r)
	}
	for _, x := range r.Rows {
		if x.GBps <= 0 || x.Own <= 0 || x.Share <= 0 || x.Last <= 0 {
			t.Errorf("%+v", x)
		}
	}
	var b bytes.Buffer
	if err := ShowOffload(&b, r); err != nil || strings.Count(b.String(), "KiB") != 2*len(offloadSizes)+1 || !strings.Contains(b.String(), "cpu: not used: at no size") {
		t.Errorf("%v\n%s", err, b.String())
	}
	b.Reset()
	r = Offload(OffloadEngine{Name: "dsa", Open: func() (copyeng.Channel, error) { return nil, errors.New("no such queue") }}, 3)
	if err := ShowOffload(&b, r); err != nil || !strings.Contains(b.String(), "dsa: not used: no such queue") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
