package verbs

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// What an application may do with the context that it has the descriptor of, other than to
// register memory.

// only is the one queue pair of a list.
func only(t *testing.T, list map[uint32]*lane) *lane {
	t.Helper()
	for _, ln := range list {
		if len(list) == 1 {
			return ln
		}
	}
	t.Fatalf("%d queue pairs", len(list))
	return nil
}

// TestLaneRights: an application that sends by its end of a queue pair reaches nothing of
// the sidecar at the other end, though it knows a key: where that reads from it nothing at
// all, and where it reads from that, nothing is written.
func TestLaneRights(t *testing.T) {
	for what, x := range map[string]struct {
		reads bool   // the sidecar reads from the application's memory; else the other way round
		op    uint32 // of the application
	}{
		"a write to who reads":           {true, opWrite},
		"a read of who reads":            {true, opRead},
		"a write to who is read from it": {false, opWrite},
	} {
		all := lenders(t)
		a, b := all[0], all[1]
		if x.reads {
			if _, _, err := a.read(t, b, 1, false, true); err != nil {
				t.Fatal(err)
			}
		} else if _, _, err := b.read(t, a, 1, true, false); err != nil {
			t.Fatal(err)
		}
		end := b.conns[0].answered
		if !x.reads {
			end = b.conns[0].asked
		}
		ref, mem := a.ref(false, 700_000, 4096)
		k, err := a.Expose(ref)
		if err != nil {
			t.Fatal(err)
		}
		fillWith(mem, 0x11)
		fillWith(b.mem[:4096], 0x22)
		b.app.done = nil
		pair := only(t, end).pair.(*fakePair)
		foe := request{id: 99, op: x.op, flags: flagSignal, addr: b.at.addr, lkey: b.at.lkey, length: 4096, remote: k.Addr, rkey: uint32(k.Key)}
		if err := pair.post([]request{foe}); err != nil {
			t.Fatal(err)
		}
		var got [8]completion
		n, err := b.app.poll(got[:])
		if err != nil || n != 1 || got[0].status != statusAccess {
			t.Errorf("%s: %d ends, %+v, %v: it is not refused", what, n, got[0], err)
		}
		if mem[0] != 0x11 || b.mem[0] != 0x22 {
			t.Errorf("%s: %#x is written, %#x read", what, mem[0], b.mem[0])
		}
	}
}

func fillWith(b []byte, v byte) { copy(b, bytes.Repeat([]byte{v}, len(b))) }

// waiting is a lane of a's with three reads, of which the third has its turn when others
// are over. Nothing answers.
func waiting(t *testing.T) (a, b *lender, ln *lane) {
	t.Helper()
	all := lenders(t)
	a, b = all[0], all[1]
	if _, _, err := a.read(t, b, 1, true, true); err != nil {
		t.Fatal(err)
	}
	ln = only(t, a.conns[0].asked)
	ln.pair.(*fakePair).peer = 0
	r, _ := b.ref(true, 0, lentBytes)
	k, err := b.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	for token := range uint64(3) {
		d, _ := a.ref(true, 0, lentBytes)
		if err := a.Read(0, 10+token, d, k); err != nil {
			t.Fatal(err)
		}
	}
	a.pass(b)
	if ln.ops.under != piecesMax || ln.ops.table[2].left != 0 {
		t.Fatalf("%d requests are under way, %d of the third read", ln.ops.under, ln.ops.table[2].left)
	}
	return a, b, ln
}

// TestForgedEnds: an application that makes completions up loses its queue pair, and no
// operation of it goes on for ever: what holds memory, and peers, would never end.
func TestForgedEnds(t *testing.T) {
	a, b, ln := waiting(t)
	for range 2 * piecesMax {
		a.app.done = append(a.app.done, completion{id: idOf(ln.tag, 2), status: statusOK})
	}
	a.pass(b)
	for token := range uint64(3) {
		if _, over := a.dones[10+token]; !over {
			t.Errorf("read %d does not end", token)
		}
	}
	if !ln.over || a.Stats().LentFaults != 1 {
		t.Errorf("the queue pair is over: %v; %d have failed", ln.over, a.Stats().LentFaults)
	}
	if under := a.lending.domains[ln.d.number].under; under != 0 {
		t.Errorf("%d requests are counted as under way", under)
	}
}

// TestSilentLane: a queue pair of which nothing is heard is given up: its application may
// have filled the queue of completions.
func TestSilentLane(t *testing.T) {
	a, b, ln := waiting(t)
	a.watch.look = true
	a.pass(b)
	if ln.over {
		t.Fatal("it is given up at once")
	}
	ln.since = ln.since.Add(-laneSilence)
	ln.looked = ln.since
	a.probeLanes()
	a.pass(b)
	if err := a.dones[10]; !ln.over || !errors.Is(err, link.ErrBroken) {
		t.Errorf("a silent queue pair is over: %v; its read has ended with %v", ln.over, err)
	}
}

// TestLenderGone: when the device is gone nothing of an application's context keeps the
// engine awake.
func TestLenderGone(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	if _, _, err := a.read(t, b, 1, true, true); err != nil {
		t.Fatal(err)
	}
	a.lose(unix.EIO)
	a.pass(b)
	if a.conns[0] != nil || a.lending.lanes != 0 {
		t.Errorf("the connection goes on, with %d queue pairs for lent memory", a.lending.lanes)
	}
	a.app.tellFault() // as a descriptor of what is gone is readable for ever
	ready := []unix.PollFd{{Fd: int32(a.FD()), Events: unix.POLLIN}}
	if n, err := unix.Poll(ready, 0); n != 0 || err != nil {
		t.Errorf("the link is ready: %d, %v", n, err)
	}
}
