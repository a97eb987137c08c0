package engine

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// appContext is a context that counts how often it is closed.
type appContext struct {
	f      *os.File
	closed atomic.Int32
}

func (x *appContext) Grant() link.Grant { return link.Grant{FD: int(x.f.Fd())} }

func (x *appContext) Close() error {
	x.closed.Add(1)
	return x.f.Close()
}

// lender is a link that accepts contexts, or refuses them.
type lender struct {
	link.Link
	refusal error
	has     map[link.Region]link.Context // owned by the engine's goroutine
}

func (l *lender) Abilities() link.Abilities {
	return link.Abilities{Lender: l, DropRegion: l.DropRegion, Lent: l.Lent}
}

func (l *lender) Admit(r link.Region, x link.Context) error {
	if l.refusal == nil {
		l.has[r] = x
	}
	return l.refusal
}

func (l *lender) DropRegion(r link.Region) {
	if x := l.has[r]; x != nil {
		_ = x.Close() // a test's file
	}
}

func (l *lender) Lend(link.Region, uint32, link.Lent) error { return nil }
func (l *lender) Reclaim(link.Region, uint32)               {}
func (l *lender) Lent() link.LentCounts                     { return link.LentCounts{Reads: 3, Bytes: 4} }

// TestContextOfASession checks that the link owns an application's context until the
// session ends. If no link accepts it, it is closed at once, and the session goes on.
func TestContextOfASession(t *testing.T) {
	for what, x := range map[string]struct {
		remote link.Link
		taken  bool
	}{
		"a link that lends":      {&lender{Link: local.New(0, nil), has: map[link.Region]link.Context{}}, true},
		"one that cannot now":    {&lender{Link: local.New(0, nil), refusal: errors.New("the device is gone")}, false},
		"one that never does so": {local.New(0, nil), false},
	} {
		t.Run(what, func(t *testing.T) {
			made := make(chan *appContext, 1)
			_, socket := servedOver(t, 1, x.remote, func() (link.Context, error) {
				f, err := os.Open(os.DevNull)
				c := &appContext{f: f}
				made <- c
				return c, err
			})
			conn, _ := join(t, socket, 0)
			c := <-made
			if x.taken != (c.closed.Load() == 0) {
				t.Errorf("the context was closed %d times while the session is there", c.closed.Load())
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(timeout); c.closed.Load() == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the context outlives its session")
				}
			}
			if n := c.closed.Load(); n != 1 {
				t.Errorf("the context was closed %d times", n)
			}
		})
	}
}

// TestLentIsCounted checks that the link's counts of lent memory are part of the counters.
func TestLentIsCounted(t *testing.T) {
	e, _ := servedOver(t, 1, &lender{Link: local.New(0, nil)}, nil)
	v, err := e.View()
	if want := (link.LentCounts{Reads: 3, Bytes: 4}); err != nil || v.Lent != want {
		t.Errorf("%+v, %v, want %+v", v.Lent, err, want)
	}
}

// keyLink is a link with registrations, which records the peer of a deregistration; 0: all
// peers.
type keyLink struct {
	link.Remote
	from []link.Peer
}

func (l *keyLink) Deregister(link.Key) { l.from = append(l.from, 0) }

// TestKeysOfPeers checks that a link that can withdraw a key from one peer is told the
// peer, and that a link with link.Remote only deregisters the key.
func TestKeysOfPeers(t *testing.T) {
	l := &keyLink{}
	able := link.Abilities{
		Remote:   l,
		Release:  func(link.Key) { l.from = append(l.from, -1) },
		Withdraw: func(p link.Peer, _ link.Key) { l.from = append(l.from, p) },
	}
	for _, x := range []struct {
		can  link.Abilities
		want []link.Peer
	}{{able, []link.Peer{2, -1}}, {link.Abilities{Remote: l}, []link.Peer{0, 0}}} {
		l.from = nil
		e := &Engine{can: [2]link.Abilities{linkRemote: x.can}}
		e.Deregister(2, link.Key{})
		e.Release(2, link.Key{})
		if !slices.Equal(l.from, x.want) {
			t.Errorf("a link that can withdraw: %v, is told %v, want %v", x.can.Withdraw != nil, l.from, x.want)
		}
	}
}

// departing is a link that counts buffers, and keeps memory pinned after its rank has left.
type departing struct {
	link.Link
	ended []uint32
}

func (d *departing) Abilities() link.Abilities {
	return link.Abilities{Buffers: d.Buffers, EndSession: d.EndSession}
}

func (d *departing) Buffers(uint32) link.BufferCounts {
	return link.BufferCounts{Seen: 3, PinnedBytes: 8192}
}
func (d *departing) EndSession(session uint32) { d.ended = append(d.ended, session) }

// TestNothingPinnedOfTheDeparted checks that of a rank that has left the totals stay, and
// that its registered memory, which is a gauge, is 0.
func TestNothingPinnedOfTheDeparted(t *testing.T) {
	e, socket := servedOver(t, 1, &departing{Link: local.New(0, nil)}, nil)
	conn, _ := join(t, socket, 0)
	counted := func(want link.BufferCounts) {
		t.Helper()
		for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
			v, err := e.View()
			if err == nil && len(v.Buffers) == 1 && v.Buffers[0].BufferCounts == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%+v, %v, want %+v", v.Buffers, err, want)
			}
		}
	}
	counted(link.BufferCounts{Seen: 3, PinnedBytes: 8192})
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	counted(link.BufferCounts{Seen: 3})
}

// TestCountsOfARankAddUp checks that successive programs of a rank are added up in each
// metric.
func TestCountsOfARankAddUp(t *testing.T) {
	e := &Engine{can: [2]link.Abilities{linkRemote: new(departing).Abilities()}}
	for _, rank := range []uint32{4, 2, 4, 4} {
		e.keepBuffers(&attached{Session: &session.Session{Rank: rank}})
	}
	e.sessions = []*attached{{Session: &session.Session{Rank: 2}}}
	want := []RankBuffers{{2, link.BufferCounts{Seen: 6, PinnedBytes: 8192}}, {4, link.BufferCounts{Seen: 9}}}
	if got := e.buffers(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestAttachmentsAreBounded checks the bound of attachments, each of which uses up region
// numbers.
func TestAttachmentsAreBounded(t *testing.T) {
	e, _ := podOf(t, 1, core.Config{PodOf: []int32{0}, Pods: 1}, &source{})
	e.regions = append(e.regions, make([][]byte, regionsMax)...)
	if err := e.Attach(nil); err == nil || !strings.Contains(err.Error(), "start a new job") {
		t.Errorf("one more attachment: %v", err)
	}
}

// TestInTurn checks that a call is done when InTurn returns, and that a stopped engine
// returns an error.
func TestInTurn(t *testing.T) {
	e, _ := served(t, 1)
	done := false
	if err := e.InTurn(func() { done = true }); err != nil || !done {
		t.Errorf("done: %v, %v", done, err)
	}
	e, _ = pod(t, 1)
	closing(t, e)
	e.inbox.close()
	if err := e.InTurn(func() { t.Error("done by a stopped engine") }); !errors.Is(err, errStopped) {
		t.Errorf("got %v, want %v", err, errStopped)
	}
}
