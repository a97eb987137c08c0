package verbs

import (
	"bytes"
	"testing"
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
