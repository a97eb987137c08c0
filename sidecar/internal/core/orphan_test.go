package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
)

// TestInlineSendsOutliveTheirSession: sends whose bytes the engine has copied outlive a
// session that detaches. Its sidecar does not end before their receivers have the messages;
// they also end if a receiver leaves. If the session dies, its sends end with it.
func TestInlineSendsOutliveTheirSession(t *testing.T) {
	const extra = 10
	for name, clean := range map[string]bool{"goodbye": true, "death": false} {
		t.Run(name, func(t *testing.T) {
			x := newCrowd(t)
			d := shm.Descriptor{Op: shm.OpSend, Peer: 2, Flags: shm.FlagSilent}
			d.SetInline([]byte("farewell"))
			for range 4096 + extra { // more than the credit
				x.submit(0, d)
			}
			for x.core.Flush(2, x) {
			}
			var announced []uint64
			for _, f := range x.frames {
				if f.Head.Type == wire.RTS {
					announced = append(announced, f.Head.B)
				}
			}
			if len(announced) != extra {
				t.Fatalf("%d messages wait with their sender, want %d", len(announced), extra)
			}
			if clean {
				x.submit(0, shm.Descriptor{Op: shm.OpDetach})
			} else {
				x.core.Detach(3, 0, errGone)
			}
			for x.core.Advance(3) > 0 {
			}
			if !clean {
				if n := x.core.Stats().Sends; n != 0 {
					t.Errorf("%d sends have outlived a session that died", n)
				}
				return
			}
			if l := x.core.Leftover(); l.Sends != extra {
				t.Errorf("%d messages are left to deliver, want %d", l.Sends, extra)
			}
			x.frames = nil
			var raw [wire.PullBytes]byte
			body := wire.PullBody{Bytes: 8}
			for i, request := range announced[:extra-1] {
				x.deliver(wire.Header{Type: wire.Pull, A: request, B: uint64(i) + 1, Length: uint32(body.Encode(raw[:]))}, raw[:])
				x.core.Flush(3, x)
				x.deliver(wire.Header{Type: wire.Fin, A: request}, nil)
			}
			x.deliver(wire.Header{Type: wire.Fin, A: announced[extra-1], B: uint64(shm.StatusPeerLeft)}, nil)
			data := 0
			for _, f := range x.frames {
				if f.Head.Type == wire.Data && string(f.Inline[:8]) == "farewell" {
					data++
				}
			}
			if l := x.core.Leftover(); data != extra-1 || l.Sends != 0 || x.core.Stats().Sends != 0 {
				t.Errorf("%d messages came, %d are left", data, l.Sends)
			}
		})
	}
}
