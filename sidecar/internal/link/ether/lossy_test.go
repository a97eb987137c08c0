package ether

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// badCarrier loses, repeats and reorders what another carrier receives.
type badCarrier struct {
	carrier
	rand *rand.Rand
	late [][]byte // packets that are handed over with the next ones
	from address
	kept [][]byte
}

// Shares of packets that a badCarrier treats so, in percent.
const (
	losses  = 5
	repeats = 5
	delays  = 10
)

func (b *badCarrier) receive() ([]arrival, bool) {
	list, more := b.carrier.receive()
	now := b.late
	b.late = nil
	for _, a := range list {
		b.from = a.from
		for data := a.data; len(data) > 0; {
			n := min(a.size, len(data))
			p := bytes.Clone(data[:n])
			data = data[n:]
			switch r := b.rand.IntN(100); {
			case r < losses:
			case r < losses+repeats:
				now = append(now, p, bytes.Clone(p))
			case r < losses+repeats+delays:
				b.late = append(b.late, p)
			default:
				now = append(now, p)
			}
		}
	}
	b.kept = now
	out := make([]arrival, len(now))
	for i, p := range now {
		out[i] = arrival{data: p, size: len(p), from: b.from}
	}
	return out, more
}

func worsen(t testing.TB, l *Link) {
	t.Helper()
	l.out.carrier = &badCarrier{carrier: l.out.carrier, rand: rand.New(rand.NewPCG(1, uint64(l.cfg.Self)))}
}

// TestBadNetwork runs the suite over a network that loses, repeats and reorders packets.
func TestBadNetwork(t *testing.T) { linktest.Run(t, pairs(true, worsen)) }

// filter makes the kernel drop one packet of 20 before the socket gets it.
func filter(t testing.TB, l *Link) {
	t.Helper()
	// Of the BPF extensions of Linux (networking/filter.rst): a random number of 32 bits.
	const random = 0xfffff000 + 56
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: random},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jt: 1, K: 1 << 32 / 20},
		{Code: unix.BPF_RET | unix.BPF_K},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 18},
	}
	err := unix.SetsockoptSockFprog(l.out.carrier.descriptor(), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLoss sends 1,000 messages of mixed sizes in both directions while the kernel loses one
// packet of 20, and checks that all arrive, and some in each second, and that the path counts
// what the kernel has dropped.
func TestLoss(t *testing.T) {
	p := pairs(false, filter)(t)
	exchangeWithLoss(t, p)
	for _, side := range []linktest.Side{p.A, p.B} {
		if d := side.Link.(*Link).Paths()[0].Dropped; d == 0 || side.Link.(*Link).Paths()[0].Dropped < d {
			t.Errorf("the kernel has dropped packets, and the path counts %d", d)
		}
	}
}

func exchangeWithLoss(t *testing.T, p *linktest.Pair) {
	t.Helper()
	a, b := linktest.NewSink(p.A.Memory), linktest.NewSink(p.B.Memory)
	forth, back := mixed(p.A.Memory), mixed(p.B.Memory)
	x, y := forth, back
	last, seen := processorTime(t), 0
	for a.Frames() < len(forth) || b.Frames() < len(forth) {
		x = x[p.A.Link.Post(p.A.Peer, x):]
		y = y[p.B.Link.Post(p.B.Peer, y):]
		p.A.Link.Poll(a)
		p.B.Link.Poll(b)
		if n := a.Frames() + b.Frames(); n > seen {
			seen, last = n, processorTime(t)
		}
		if processorTime(t)-last > time.Second || a.DownError() != nil || b.DownError() != nil {
			t.Fatalf("no frame for a second of the processor after %d: %v, %v", seen, a, b)
		}
	}
	linktest.Compare(t, p.A.Memory, forth, b)
	linktest.Compare(t, p.B.Memory, back, a)
	s := p.A.Link.(*Link).Stats()
	if s.Lost == 0 {
		t.Error("no packet was sent again: the test shows nothing")
	}
}

// processorTime returns the processor time of this process, which polls all the time: so it
// does not pass while the machine does other work.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// mixed returns 1,000 frames whose sizes are at the edges of a packet, and larger.
func mixed(m *linktest.Memory) []*link.Frame {
	r := rand.New(rand.NewPCG(2, 2))
	sizes := []int{0, 8, 200, 1300, 8800, 9000, 64 << 10, 300_000}
	frames := make([]*link.Frame, 1000)
	for i := range frames {
		n := sizes[r.IntN(len(sizes))]
		frames[i] = &link.Frame{Head: wire.Header{Type: wire.Data, Seq: uint64(i + 1), Length: uint32(n)}}
		if n > 0 {
			frames[i].Payload = m.Fill(n, uint64(i))
		}
	}
	return frames
}
