package core

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/epoch"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// epochal returns a duo whose two ranks both have the window.
func epochal(t *testing.T) *duo {
	t.Helper()
	d := known(t)
	win := shm.Descriptor{Op: shm.OpWin, Req: 100, Class: shm.ClassArena, Context: reachWin}
	win.SetBody(1<<20, reachBytes, 0, 0)
	d.submit(0, win)
	d.ports[0].ended, d.ports[1].ended = nil, nil
	return d
}

func tellPeer(op shm.Op, req, peer uint32) shm.Descriptor {
	return shm.Descriptor{Op: op, Req: req, Peer: peer, Context: reachWin}
}

// TestEpoch checks that an epoch takes two frames in addition to its accesses.
func TestEpoch(t *testing.T) {
	d := epochal(t)
	for _, x := range []struct {
		what   string
		pod    int
		d      shm.Descriptor
		frames string
		ends   []uint32 // requests that end, in both pods
	}{
		{"start waits", 0, tellPeer(shm.OpStart, 1, 1), "", nil},
		{"post", 1, tellPeer(shm.OpPost, 2, 0), "post", []uint32{1, 2}},
		{"wait waits", 1, tellPeer(shm.OpWait, 3, 0), "", nil},
		{"a remote put", 0, onWindow(shm.OpPut, 4, 0, 1000), "", []uint32{4}},
		{"a put", 0, onWindow(shm.OpPut, 5, 0, 10), "put", []uint32{5}},
		{"complete", 0, tellPeer(shm.OpComplete, 6, 1), "complete", []uint32{6, 3}},
		{"another post", 1, tellPeer(shm.OpPost, 7, 0), "post", []uint32{7}},
		{"its start", 0, tellPeer(shm.OpStart, 8, 1), "", []uint32{8}},
	} {
		d.submit(x.pod, x.d)
		if got := d.frames(); got != x.frames {
			t.Errorf("%s: %q, want %q", x.what, got, x.frames)
		}
		var ends []uint32
		for _, p := range d.ports {
			for _, e := range p.ended {
				if e.Status != shm.StatusOK {
					t.Errorf("%s: request %d ended with %d", x.what, e.Req, e.Status)
				}
				ends = append(ends, e.Req)
			}
			p.ended = nil
		}
		if len(ends) != len(x.ends) || len(ends) > 0 && (ends[0] != x.ends[0] || ends[len(ends)-1] != x.ends[len(x.ends)-1]) {
			t.Errorf("%s: requests %v ended, want %v", x.what, ends, x.ends)
		}
	}
}

// TestCompleteIsLast checks that the end of an epoch follows a put that has failed and was
// repeated by frames, and a get that is being answered.
func TestCompleteIsLast(t *testing.T) {
	d := epochal(t)
	d.ports[0].refuse = 2
	d.submit(0, onWindow(shm.OpPut, 2, 0, 1000))
	d.submit(0, onWindow(shm.OpGet, 3, 0, 1000))
	d.submit(0, tellPeer(shm.OpComplete, 4, 1))
	if got := d.frames(); got != "put get got complete" && got != "get put got complete" {
		t.Errorf("%q: complete is to be behind all that its rank did", got)
	}
	if req, status := d.last(0); req != 4 || status != shm.StatusOK {
		t.Errorf("request %d ended last, with %d", req, status)
	}
}

// TestEpochEnds checks that no request of an epoch waits for a rank that is gone, in a window
// that does not exist, or beyond the bound of what may wait, and that a window cannot be freed
// while requests wait in it.
func TestEpochEnds(t *testing.T) {
	for name, x := range map[string]struct {
		play   func(d *duo)
		status shm.Status
	}{
		"the peer has left": {func(d *duo) {
			d.submit(0, tellPeer(shm.OpStart, 1, 1))
			d.submit(1, shm.Descriptor{Op: shm.OpDetach})
			d.cores[1].Leave(d.now)
			d.run()
			for d.cores[0].Advance(d.now) > 0 {
			}
		}, shm.StatusPeerLeft},
		"it had left": {func(d *duo) {
			d.submit(1, shm.Descriptor{Op: shm.OpDetach})
			d.cores[1].Leave(d.now)
			d.run()
			d.submit(0, tellPeer(shm.OpWait, 1, 1))
		}, shm.StatusPeerLeft},
		"it left behind its post": {func(d *duo) {
			d.submit(1, tellPeer(shm.OpPost, 1, 0))
			d.submit(1, shm.Descriptor{Op: shm.OpDetach})
			d.cores[1].Leave(d.now)
			d.run()
			d.submit(0, tellPeer(shm.OpStart, 1, 1))
		}, shm.StatusOK},
		"it is dead": {func(d *duo) {
			d.submit(0, tellPeer(shm.OpStart, 1, 1))
			d.cores[0].LinkDown(d.now, 1, link.ErrProtocol)
		}, shm.StatusAborted},
		"it was killed": {func(d *duo) {
			d.submit(0, tellPeer(shm.OpWait, 1, 1))
			d.cores[1].Detach(d.now, 0, errors.New("killed"))
			d.run()
		}, shm.StatusAborted},
		"no window": {func(d *duo) {
			x := tellPeer(shm.OpStart, 1, 1)
			x.Context++
			d.submit(0, x)
		}, shm.StatusInvalid},
		"too many": {func(d *duo) {
			for i := range uint32(epoch.Most + 1) {
				d.submit(0, tellPeer(shm.OpStart, 1+i, 1))
			}
		}, shm.StatusUnsupported},
		"freed": {func(d *duo) {
			d.submit(0, tellPeer(shm.OpStart, 1, 1))
			d.submit(0, tellPeer(shm.OpWinFree, 2, 0))
		}, shm.StatusInvalid},
	} {
		d := epochal(t)
		x.play(d)
		if req, status := d.last(0); status != x.status {
			t.Errorf("%s: request %d ended with %d, want %d", name, req, status, x.status)
		}
	}
}
