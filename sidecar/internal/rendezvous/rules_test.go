package rendezvous

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestPaths checks what two sidecars may do, by protocol and by the link's abilities.
func TestPaths(t *testing.T) {
	order, notify := link.Caps{Read: true, Write: true, InOrder: true}, link.Caps{Read: true, Write: true, Notify: true}
	neither, reads := link.Caps{Read: true, Write: true}, link.Caps{Read: true, InOrder: true}
	for _, x := range []struct {
		protocol       Protocol
		caps           link.Caps
		polls, invites bool
	}{
		{Get, order, true, false},
		{Get, notify, false, false},
		{GetCQE, order, false, false},
		{Auto, order, false, false},
		{Get, link.Caps{Write: true, InOrder: true}, false, false},
		{Put, order, false, true},
		{Put, notify, false, true},
		{Put, neither, false, false},
		{Put, reads, false, false},
		{PutNR, order, false, true},
		{PutNR, notify, false, true},
		{RPut, order, false, false},
		{Stream, order, false, false},
	} {
		p := Path{x.protocol, x.caps}
		if p.Polls() != x.polls || p.Invites() != x.invites {
			t.Errorf("%v with %+v: polls the last byte %v, offers %v", x.protocol, x.caps, p.Polls(), p.Invites())
		}
	}
	for _, x := range []struct {
		p    Path
		want bool
	}{
		{Path{GetCQE, link.Caps{Write: true, RegisterMax: 10}}, true},
		{Path{GetCQE, link.Caps{Read: true, RegisterMax: 10}}, false},
		{Path{Stream, link.Caps{Write: true, RegisterMax: 10}}, false},
		{Path{GetCQE, link.Caps{Write: true}}, false},
	} {
		if x.p.inParts(11) != x.want || x.p.inParts(10) {
			t.Errorf("%+v: 11 bytes in parts %v, 10 bytes %v", x.p, x.p.inParts(11), x.p.inParts(10))
		}
	}
	if Named("putnr") != PutNR || Named("unknown") != Auto {
		t.Errorf("%v, %v", Named("putnr"), Named("unknown"))
	}
}

// TestLastByte checks that the last byte shows the end exactly if it is polled.
func TestLastByte(t *testing.T) {
	var target Target
	if target.Arrived(1) {
		t.Error("a message that is not polled has arrived")
	}
	if s := target.Polled(); s.Do != Nothing {
		t.Errorf("its end does %d", s.Do)
	}
	if Collides(&wire.ReadyBody{Guard: 3}, 3) || !Collides(&wire.ReadyBody{Guard: 3, Poll: true}, 3) {
		t.Error("Collides is wrong")
	}
	mem := link.Ref{Region: 7, Len: 100}
	get := Path{Get, link.Caps{Read: true, InOrder: true}}
	target = Target{Want: 100, Total: 100, Mem: mem, Staged: true}
	if s := target.Start(get, &wire.RTSBody{Key: sourceKey}); s.Do != Read || s.Poll {
		t.Errorf("into lent memory: does %d, polls %v", s.Do, s.Poll)
	}
	target = Target{Want: 100, Total: 100, Mem: mem}
	target.Start(get, &wire.RTSBody{Key: sourceKey, Last: 5})
	target.Started()
	if !target.Reading() || !target.Polling() {
		t.Error("Reading is false during the read")
	}
	target.Read(errPlay)
	if target.Reading() || target.Polling() {
		t.Error("Reading is true after the read")
	}
	lent := Source{Total: 100, Mem: mem, Lent: true}
	if s := lent.Start(get); s.Do != Announce {
		t.Errorf("a lent source is announced with a last byte: does %d", s.Do)
	}
	if s := lent.Start(Path{GetCQE, link.Caps{Read: true, RegisterMax: 10}}); s.Do != Register {
		t.Errorf("a lent source is not registered: does %d", s.Do)
	}
	if s, err := lent.Pulled(link.Caps{Write: true}, targetRequest, &wire.PullBody{Bytes: 100, Key: targetKey}); err != nil || s.Do != Flow {
		t.Errorf("a lent source is written from: does %d, %v", s.Do, err)
	}
}

// TestLaterPart checks that a part that the link registers in a later turn is tried again
// until it is registered, and once in each turn.
func TestLaterPart(t *testing.T) {
	mem := link.Ref{Region: 7, Len: 100}
	target := Target{Want: 100, Total: 100, Mem: mem}
	path := Path{RPut, link.Caps{Write: true, RegisterMax: 40}}
	target.Start(path, &wire.RTSBody{})
	if _, ok := target.Retry(); ok {
		t.Error("Retry before Later")
	}
	target.Registered(link.Key{Key: targetKey})
	step, err := target.Written()
	if err != nil || step.Do != Register || step.Mem != mem.Slice(40, 40) {
		t.Fatalf("does %d with %+v, %v", step.Do, step.Mem, err)
	}
	if key, was := target.Part(); !was || key.Key != targetKey {
		t.Errorf("the part before has key %d, %v", key.Key, was)
	}
	if _, was := target.Part(); was {
		t.Error("its registration ends twice")
	}
	for range 2 {
		target.Later()
		if step, ok := target.Retry(); !ok || step.Do != Register || step.Mem != mem.Slice(40, 40) {
			t.Errorf("%v: does %d with %+v", ok, step.Do, step.Mem)
		}
		if _, ok := target.Retry(); ok {
			t.Error("it is tried twice in a turn")
		}
	}
	for _, end := range []func(){func() { target.Registered(link.Key{Key: targetKey}) }, func() { target.Unregistered() }} {
		target.Later()
		if end(); target.deferred {
			t.Error("a part that waits is retried")
		}
	}
}

// TestTargetRefuses checks that reports about parts that were not asked for break the
// protocol, and that data of a peer never exceeds the part.
func TestTargetRefuses(t *testing.T) {
	mem := link.Ref{Region: 7, Len: 100}
	fresh := Target{Want: 100, Total: 100, Mem: mem}
	if _, err := fresh.Written(); !errors.Is(err, link.ErrProtocol) {
		t.Errorf("a write that was not asked for is complete: %v", err)
	}
	if _, err := fresh.Unwritten(0); !errors.Is(err, link.ErrProtocol) {
		t.Errorf("a write that was not asked for has failed: %v", err)
	}
	target := fresh
	target.Start(Path{RPut, link.Caps{Write: true, RegisterMax: 40}}, &wire.RTSBody{})
	target.Registered(link.Key{Key: targetKey})
	for _, x := range []struct {
		off, n uint64
		ok     bool
	}{{0, 0, false}, {1, 1, false}, {0, 41, false}, {0, 40, true}, {0, 1<<64 - 1, false}} {
		if err := target.Accept(x.off, x.n); (err == nil) != x.ok {
			t.Errorf("%d bytes at %d: %v", x.n, x.off, err)
		}
	}
	if step := target.Placed(30); step.Do != Nothing {
		t.Errorf("a part of the part has arrived: does %d", step.Do)
	}
	if err := target.Accept(30, 11); err == nil {
		t.Error("data beyond the part is accepted")
	}
	if step := target.Placed(10); step.Do != Register {
		t.Errorf("the part has arrived: does %d", step.Do)
	}
	if step, err := target.Written(); err != nil || step.Do != Nothing || target.Got != 40 {
		t.Errorf("the notification of a part that was sent in frames: does %d, %v, has %d", step.Do, err, target.Got)
	}
	if step, err := target.Unwritten(40); err != nil || step.Do != Nothing {
		t.Errorf("no write is in flight: does %d, %v", step.Do, err)
	}
	if step := target.Registered(link.Key{Key: targetKey}); step.Do != Ask {
		t.Errorf("does %d", step.Do)
	}
	if step, err := target.Unwritten(0); err != nil || step.Do != Nothing {
		t.Errorf("the write of the part before has failed: does %d, %v", step.Do, err)
	}
	if step, err := target.Unwritten(40); err != nil || step.Do != Ask || step.Pull.Bytes != 60 || step.Pull.Key != 0 {
		t.Errorf("the write of this part has failed: does %d with %+v, %v", step.Do, step.Pull, err)
	}
	pieces := Target{Want: 100, Total: 100, Staged: true}
	if step := pieces.Start(Path{GetCQE, link.Caps{}}, &wire.RTSBody{}); step.Do != Supply {
		t.Errorf("memory that is supplied in pieces: does %d", step.Do)
	}
	if err := pieces.Accept(0, 60); err != nil {
		t.Error(err)
	}
	if step := pieces.Placed(60); step.Do != Nothing {
		t.Errorf("does %d", step.Do)
	}
	if pieces.Accept(60, 41) == nil || pieces.Accept(60, 40) != nil {
		t.Error("60 of 100 bytes have arrived: 40 more are allowed")
	}
	if step := pieces.Placed(40); step.Do != Finish {
		t.Errorf("all has arrived: does %d", step.Do)
	}
	empty := Target{}
	if step := empty.Start(Path{RPut, link.Caps{Write: true}}, &wire.RTSBody{Key: sourceKey}); step.Do != Finish {
		t.Errorf("nothing is wanted: does %d", step.Do)
	}
}

// TestTargetStarts checks the steps of a receiver after an announcement with a key, and
// after a read that is refused or has failed, for each kind of memory.
func TestTargetStarts(t *testing.T) {
	mem := link.Ref{Region: 7, Len: 100}
	all := link.Caps{Register: true, Read: true, Write: true}
	for _, x := range []struct {
		target                 Target
		protocol               Protocol
		start, refused, failed Do
	}{
		{Target{Mem: mem}, Auto, Read, Register, Ask},
		{Target{}, Auto, Ask, Ask, Ask},
		{Target{Mem: mem}, RPut, Register, Register, Ask},
		{Target{Mem: mem}, Stream, Ask, Ask, Ask},
		{Target{Staged: true}, Auto, Supply, Supply, Supply},
		{Target{Mem: mem, Staged: true}, Auto, Read, Supply, Supply}, // lent
		{Target{Mem: mem, Staged: true}, RPut, Supply, Supply, Supply},
	} {
		x.target.Want, x.target.Total = 100, 100
		p := Path{x.protocol, all}
		a, b, c := x.target, x.target, x.target
		if s, r, f := a.Start(p, &wire.RTSBody{Key: sourceKey}).Do, b.Refused(p).Do, c.Read(errPlay).Do; s != x.start || r != x.refused || f != x.failed {
			t.Errorf("%+v by %v: does %d, once refused %d, once failed %d", x.target, x.protocol, s, r, f)
		}
	}
}

// TestKeys checks that a registration is known until its end.
func TestKeys(t *testing.T) {
	var s Source
	var target Target
	if _, ok := s.Key(); ok {
		t.Error("a key without a registration")
	}
	s.Registered(link.Key{Key: sourceKey}, 0)
	target.Ready(link.Key{Key: targetKey}, 0)
	if k, ok := s.Key(); !ok || k.Key != sourceKey {
		t.Errorf("key %d of the source, %v", k.Key, ok)
	}
	if k, ok := target.Key(); !ok || k.Key != targetKey {
		t.Errorf("key %d of the target, %v", k.Key, ok)
	}
}

// TestSourceRefuses checks that a request out of order breaks the protocol.
func TestSourceRefuses(t *testing.T) {
	mem := link.Ref{Region: 7, Len: 100}
	for _, b := range []wire.PullBody{{}, {Bytes: 101}, {Offset: 1, Bytes: 100}, {Offset: 1, Bytes: 1}, {Offset: 1<<64 - 1, Bytes: 2}, {Bytes: 1 << 63, Offset: 1 << 63}} {
		s := Source{Total: 100, Mem: mem}
		if _, err := s.Pulled(link.Caps{}, targetRequest, &b); !errors.Is(err, link.ErrProtocol) || s.Asked() || s.Open() {
			t.Errorf("%d bytes at %d: %v, asked %v, open %v", b.Bytes, b.Offset, err, s.Asked(), s.Open())
		}
	}
	beyond := Source{Total: 100, Mem: mem}
	if _, err := beyond.Pulled(link.Caps{}, targetRequest, &wire.PullBody{Bytes: 60}); err != nil {
		t.Fatal(err)
	}
	if _, err := beyond.Pulled(link.Caps{}, targetRequest, &wire.PullBody{Offset: 60, Bytes: 60}); !errors.Is(err, link.ErrProtocol) {
		t.Errorf("a pull beyond the message's end: %v", err)
	}
	parts, writes := Source{Total: 100, Mem: mem}, link.Caps{Write: true}
	for _, off := range []uint64{0, 40} { // the write of the part before fails, although it has arrived
		if step, err := parts.Pulled(writes, targetRequest, &wire.PullBody{Offset: off, Bytes: 40, Key: targetKey}); err != nil || step.Do != Write || step.Mem.Off != off {
			t.Fatalf("the part at %d: does %d at %d, %v", off, step.Do, step.Mem.Off, err)
		}
		parts.Writing()
		parts.Ended()
		parts.WriteFailed(off)
	}
	if !parts.Asked() {
		t.Error("Asked is wrong after the first part")
	}
	put := Source{Total: 100, Mem: mem}
	put.Put(targetRequest, &wire.ReadyBody{Key: targetKey})
	put.Writing()
	if _, err := put.Pulled(link.Caps{}, targetRequest, &wire.PullBody{Bytes: 100}); !errors.Is(err, link.ErrProtocol) {
		t.Errorf("a pull while the write to an offer is in flight: %v", err)
	}
	if put.Remote != targetRequest || !put.Asked() {
		t.Errorf("of request %d, asked %v", put.Remote, put.Asked())
	}
	put.Ended()
	put.WriteFailed(0)
	if put.Asked() {
		t.Error("Asked is true although the write has failed")
	}
	if step, err := put.Pulled(link.Caps{}, targetRequest, &wire.PullBody{Bytes: 100}); err != nil || step.Do != Flow || !put.Asked() {
		t.Errorf("the pull after the failed write: does %d, %v", step.Do, err)
	}
	if _, err := put.Pulled(link.Caps{}, targetRequest, &wire.PullBody{Bytes: 100}); err == nil {
		t.Error("the same pull is accepted twice")
	}
	private := Source{Total: 100}
	if step, err := private.Pulled(link.Caps{Write: true}, targetRequest, &wire.PullBody{Bytes: 100, Key: targetKey}); err != nil || step.Do != Flow {
		t.Errorf("memory without remote access: does %d, %v", step.Do, err)
	}
	silent := Source{Total: 100, Mem: mem}
	if step, err := silent.Pulled(link.Caps{Read: true}, targetRequest, &wire.PullBody{Bytes: 100, Key: targetKey}); err != nil || step.Do != Flow {
		t.Errorf("a link that does not write: does %d, %v", step.Do, err)
	}
}

// TestFragments checks that a fragment is of one pull, and that the number of open pulls
// is bounded.
func TestFragments(t *testing.T) {
	s := Source{Total: 1 << 20}
	pull := func(off, n uint64) error {
		_, err := s.Pulled(link.Caps{}, targetRequest, &wire.PullBody{Offset: off, Bytes: n})
		return err
	}
	for i := range uint64(pullLimit + 1) {
		if err := pull(10*i, 10); err != nil {
			t.Fatalf("pull %d: %v", i, err)
		}
	}
	if err := pull(10*(pullLimit+1), 10); !errors.Is(err, link.ErrProtocol) {
		t.Errorf("%d pulls are open: %v", pullLimit+2, err)
	}
	for i := range uint64(pullLimit + 1) {
		for _, want := range []uint64{7, 3} {
			if off, n := s.Next(7); n != want || off != s.Sent() || off/10 != i {
				t.Fatalf("fragment of %d bytes at %d, in pull %d", n, off, i)
			}
			s.Advance(want)
		}
	}
	if s.Open() {
		t.Error("bytes remain after all were sent")
	}
}
