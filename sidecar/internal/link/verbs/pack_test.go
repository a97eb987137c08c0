package verbs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// plain is one region of bytes.
type plain []byte

func (p plain) Bytes(r link.Ref) []byte { return p[r.Off : r.Off+r.Len] }

// heap is a sink that keeps frames.
type heap struct {
	link.Sink
	heads    []wire.Header
	payloads [][]byte
	placing  wire.Header
	place    []byte
}

func (h *heap) Deliver(_ link.Peer, head *wire.Header, payload []byte) error {
	h.heads, h.payloads = append(h.heads, *head), append(h.payloads, bytes.Clone(payload))
	return nil
}

func (h *heap) Place(_ link.Peer, head *wire.Header) ([]byte, error) {
	h.placing, h.place = *head, make([]byte, head.Length)
	return h.place, nil
}

func (h *heap) Placed(link.Peer) error { return h.Deliver(0, &h.placing, h.place) }

// TestFrames checks that all frames that are packed are unpacked, from messages that are
// never larger than a slot, with and without gathering, and that a frame that fits a
// message is in one message.
func TestFrames(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	memory := make(plain, 1<<20)
	for i := range memory {
		memory[i] = byte(rng.Uint32())
	}
	for _, gather := range []bool{false, true} {
		var o outgoing
		var in incoming
		var sent []*link.Frame
		var got heap
		slot := make([]byte, slotBytes)
		ended := false
		for len(got.heads) < 3000 {
			for !o.full() {
				f := randomFrame(rng, len(sent))
				o.add(f)
				sent = append(sent, f)
			}
			m := o.fill(slot, memory, func(link.Ref) bool { return gather })
			message := append(bytes.Clone(slot[:m.used]), memory.Bytes(m.gather)...)
			if len(message) == 0 || len(message) > slotBytes {
				t.Fatalf("seed %d: a message of %d bytes", seed, len(message))
			}
			if err := in.receive(0, message, &got, &ended); err != nil {
				t.Fatalf("seed %d: after %d frames: %v", seed, len(got.heads), err)
			}
		}
		for i, h := range got.heads {
			want := sent[i].Inline[:]
			if sent[i].Payload.Region != 0 {
				want = memory.Bytes(sent[i].Payload)
			}
			if h != sent[i].Head || !bytes.Equal(got.payloads[i], want[:h.Length]) {
				t.Fatalf("seed %d, gather %v: frame %d received as another", seed, gather, i)
			}
		}
	}
}

func randomFrame(rng *rand.Rand, n int) *link.Frame {
	f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: uint64(n + 1)}}
	if rng.IntN(2) == 0 {
		f.Head.Length = uint32(rng.IntN(link.InlineMax + 1))
		for i := range f.Inline {
			f.Inline[i] = byte(rng.Uint32())
		}
		return f
	}
	f.Head.Length = uint32(rng.IntN([]int{200, wholeMax, wholeMax + 200, 60_000}[rng.IntN(4)]) + 1)
	f.Payload = link.Ref{Region: 1, Off: uint64(rng.IntN(1<<20 - 70_000)), Len: uint64(f.Head.Length)}
	return f
}

// TestCutFrames checks that a message that ends within a frame that would fit is an
// error.
func TestCutFrames(t *testing.T) {
	head := wire.Header{Type: wire.Data, Seq: 1, Length: 1000}
	var b [wire.HeaderBytes]byte
	head.Encode(&b)
	ended := false
	for _, n := range []int{1, 40, 64} {
		var in incoming
		if err := in.receive(0, b[:n], &heap{}, &ended); !errors.Is(err, link.ErrProtocol) {
			t.Errorf("%d bytes of a frame: %v, want ErrProtocol", n, err)
		}
	}
}

// FuzzReceive checks that no bytes of a peer do harm, and that a frame always has as many
// bytes as its header says.
func FuzzReceive(f *testing.F) {
	head := wire.Header{Type: wire.Data, Seq: 1, Length: 8}
	var b [wire.HeaderBytes]byte
	head.Encode(&b)
	f.Add(append(b[:], 1, 2, 3, 4, 5, 6, 7, 8), 64)
	head.Length = 10_000
	head.Encode(&b)
	f.Add(append(b[:], make([]byte, 9000)...), 4160)
	f.Add([]byte{}, 1)
	f.Fuzz(func(t *testing.T, raw []byte, cut int) {
		var in incoming
		var got heap
		ended := false
		cut = min(max(cut, 1), slotBytes)
		for len(raw) > 0 {
			n := min(cut, len(raw))
			if err := in.receive(0, raw[:n], &got, &ended); err != nil {
				if !errors.Is(err, link.ErrProtocol) {
					t.Fatalf("%v does not wrap ErrProtocol", err)
				}
				break
			}
			raw = raw[n:]
		}
		for i := range got.heads {
			if int(got.heads[i].Length) != len(got.payloads[i]) {
				t.Fatalf("frame %d has %d bytes, its header says %d", i, len(got.payloads[i]), got.heads[i].Length)
			}
		}
	})
}
