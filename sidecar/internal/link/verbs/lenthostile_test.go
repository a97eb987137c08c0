package verbs

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// These tests cover the misuse of a context by the application that holds its descriptor.

// only returns the one queue pair of a list.
func only(t *testing.T, list map[uint32]*lentQP) *lentQP {
	t.Helper()
	for _, q := range list {
		if len(list) == 1 {
			return q
		}
	}
	t.Fatalf("%d queue pairs", len(list))
	return nil
}

// TestLentRights checks that an application that sends by its side of a queue pair
// reaches no memory of the sidecar at the other side, even with a key: it cannot read if
// the sidecar reads from it, and it cannot write if it reads from the sidecar.
func TestLentRights(t *testing.T) {
	for what, x := range map[string]struct {
		reads bool   // the sidecar reads from the application's memory; otherwise the other way round
		op    uint32 // operation of the application
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
			t.Errorf("%s: %d ends, %+v, %v: not refused", what, n, got[0], err)
		}
		if mem[0] != 0x11 || b.mem[0] != 0x22 {
			t.Errorf("%s: %#x is written, %#x read", what, mem[0], b.mem[0])
		}
	}
}

func fillWith(b []byte, v byte) { copy(b, bytes.Repeat([]byte{v}, len(b))) }

// waiting returns a lentQP of a's with three reads, of which the third waits until the
// others are complete. No side answers.
func waiting(t *testing.T) (a, b *lender, q *lentQP) {
	t.Helper()
	all := lenders(t)
	a, b = all[0], all[1]
	if _, _, err := a.read(t, b, 1, true, true); err != nil {
		t.Fatal(err)
	}
	q = only(t, a.conns[0].asked)
	q.pair.(*fakePair).peer = 0
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
	if q.ops.inFlight != piecesMax || q.ops.table[2].pending != 0 {
		t.Fatalf("%d requests are in flight, %d of the third read", q.ops.inFlight, q.ops.table[2].pending)
	}
	return a, b, q
}

// TestForgedEnds checks that an application that forges completions loses its queue pair,
// and that all of its operations end, so that memory and peers are released.
func TestForgedEnds(t *testing.T) {
	a, b, q := waiting(t)
	for range 2 * piecesMax {
		a.app.done = append(a.app.done, completion{id: idOf(q.tag, 2), status: statusOK})
	}
	a.pass(b)
	for token := range uint64(3) {
		if _, over := a.dones[10+token]; !over {
			t.Errorf("read %d does not end", token)
		}
	}
	if !q.over || a.Stats().LentFaults != 1 {
		t.Errorf("the queue pair is over: %v; %d have failed", q.over, a.Stats().LentFaults)
	}
	if under := a.lending.domains[q.d.number].inFlight; under != 0 {
		t.Errorf("%d requests are counted as in flight", under)
	}
}

// TestSilentLent checks that a queue pair without completions is ended after a while: its
// application may have filled the completion queue.
func TestSilentLent(t *testing.T) {
	a, b, q := waiting(t)
	a.watch.check = true
	a.pass(b)
	if q.over {
		t.Fatal("it is ended at once")
	}
	q.since = q.since.Add(-silenceMax)
	q.probed = q.since
	a.probeLent()
	a.pass(b)
	if err := a.dones[10]; !q.over || !errors.Is(err, link.ErrBroken) {
		t.Errorf("a silent queue pair is over: %v; its read has ended with %v", q.over, err)
	}
}

// TestLenderGone checks that when the device is lost, nothing of an application's context
// keeps the engine awake.
func TestLenderGone(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	if _, _, err := a.read(t, b, 1, true, true); err != nil {
		t.Fatal(err)
	}
	a.deviceLost(unix.EIO)
	a.pass(b)
	if a.conns[0] != nil || a.lending.lentQPs != 0 {
		t.Errorf("the connection goes on, with %d queue pairs for lent memory", a.lending.lentQPs)
	}
	a.app.ring() // as a descriptor of a lost device is readable for ever
	ready := []unix.PollFd{{Fd: int32(a.FD()), Events: unix.POLLIN}}
	if n, err := unix.Poll(ready, 0); n != 0 || err != nil {
		t.Errorf("the link is ready: %d, %v", n, err)
	}
}
