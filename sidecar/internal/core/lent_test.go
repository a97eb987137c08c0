package core

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

const lentRegion = RegionFirst + 2

// lends records lent memory by its number.
type lends map[uint32]link.Lent

func (l lends) Lend(_ link.Region, number uint32, m link.Lent) error {
	l[number] = m
	return nil
}

func (l lends) Reclaim(_ link.Region, number uint32) { delete(l, number) }

func onExposure(op shm.Op, req uint32, number uint64) shm.Descriptor {
	x := shm.Descriptor{Op: op, Req: req}
	x.SetBody(0x5000, duoBytes, number, 7|9<<32)
	return x
}

// newLending returns a duo whose pods have exposed memory as number 0.
func newLending(t *testing.T, p rendezvous.Protocol, caps link.Caps) (*duo, [2]lends) {
	t.Helper()
	d := newDuo(t, p, caps)
	known := [2]lends{{}, {}}
	for i, c := range d.cores {
		c.Lend(0, known[i], lentRegion)
		d.submit(i, onExposure(shm.OpExpose, 9, 0))
		if _, status := d.last(i); status != shm.StatusOK || known[i][0] != (link.Lent{Addr: 0x5000, Len: duoBytes, Lkey: 7, Rkey: 9}) {
			t.Fatalf("pod %d: %+v is lent, status %d", i, known[i], status)
		}
		d.ports[i].ended = nil
	}
	for i := range d.lent(0) {
		d.lent(0)[i] = byte(i%250 + 1)
	}
	copy(d.arena(0, 0), d.lent(0))
	d.types = nil
	return d, known
}

func (d *duo) lent(pod int) []byte {
	return d.ports[pod].Bytes(link.Ref{Region: lentRegion, Len: duoBytes})
}

func inLent(x shm.Descriptor) shm.Descriptor {
	x.Class = shm.ClassExposed
	return x
}

var lending = link.Caps{Register: true, Read: true, Write: true, InOrder: true, Lent: true}

// TestLent checks that the device reads from and into lent memory without any request to the
// application.
func TestLent(t *testing.T) {
	recv, send := duoMessage(shm.OpRecv, 3, 0, 0), duoMessage(shm.OpSend, 4, 1, 0)
	for what, x := range map[string]struct {
		recv, send shm.Descriptor
		protocol   rendezvous.Protocol
	}{
		"both":              {inLent(recv), inLent(send), rendezvous.Auto},
		"both, getcqe":      {inLent(recv), inLent(send), rendezvous.GetCQE},
		"the source":        {recv, inLent(send), rendezvous.Auto},
		"the target":        {inLent(recv), send, rendezvous.Auto},
		"both, put":         {inLent(recv), inLent(send), rendezvous.Put},
		"the target of get": {inLent(recv), send, rendezvous.Get},
	} {
		d, _ := newLending(t, x.protocol, lending)
		d.submit(1, x.recv)
		d.submit(0, x.send)
		d.run()
		got := d.arena(1, 0)
		if x.recv.Class == shm.ClassExposed {
			got = d.lent(1)
		}
		if f := strings.Join(d.types, " "); f != "rts fin" || !bytes.Equal(got, d.lent(0)) {
			t.Errorf("%s: %q, or the bytes are not there", what, f)
		}
		for i, p := range d.ports {
			if len(p.ended) != 1 || p.ended[0].Op != shm.OpDone || p.ended[0].Status != shm.StatusOK || len(d.keys) != 0 {
				t.Errorf("%s: pod %d has %+v, %d keys", what, i, p.ended, len(d.keys))
			}
		}
	}
}

// TestLentIsStaged checks that the applications are asked for chunks where the device cannot
// access lent memory; the message is then sent like one of private memory. The core does not
// read lent memory: in this test its bytes are not those of the message.
func TestLentIsStaged(t *testing.T) {
	plain := lending
	plain.Lent = false
	for what, x := range map[string]struct {
		protocol rendezvous.Protocol
		caps     link.Caps
		refuse   int // reads that fail
	}{
		"a read fails":                        {rendezvous.Auto, lending, 1},
		"the link does not reach it":          {rendezvous.Auto, plain, 0},
		"the last byte would have to be seen": {rendezvous.Get, lending, 0},
		"the receiver would have to be asked": {rendezvous.RPut, lending, 0},
		"nothing is remote":                   {rendezvous.Stream, lending, 0},
	} {
		d, _ := newLending(t, x.protocol, x.caps)
		clear(d.lent(0))
		d.ports[1].refuse = x.refuse
		d.submit(1, inLent(duoMessage(shm.OpRecv, 3, 0, 0)))
		d.submit(0, inLent(duoMessage(shm.OpSend, 4, 1, 0)))
		d.run()
		for _, pod := range []int{1, 0} { // the receiver is asked first
			if e := d.ports[pod].ended; len(e) != 1 || e[0].Op != shm.OpMatched || e[0].Len() != duoBytes {
				t.Fatalf("%s: pod %d has %+v, want a wish for chunks", what, pod, e)
			}
			chunk := duoMessage(shm.OpStage, uint32(4-pod), 0, 0)
			d.submit(pod, chunk)
			d.run()
		}
		if !bytes.Equal(d.arena(1, 0), d.arena(0, 0)) || !strings.HasSuffix(strings.Join(d.types, " "), "rts pull data fin") {
			t.Errorf("%s: %v, or the bytes are not there", what, d.types)
		}
		for i, p := range d.ports {
			if e := p.ended[len(p.ended)-1]; e.Op != shm.OpDone || e.Status != shm.StatusOK || len(d.keys) != 0 {
				t.Errorf("%s: pod %d ends with %+v, %d keys", what, i, e, len(d.keys))
			}
		}
	}
}

// TestLargeIntoLent: a message from the arena that is larger than the largest registration has
// no key, and is brought into lent memory in chunks. A message from lent memory has a key.
func TestLargeIntoLent(t *testing.T) {
	caps := lending
	caps.RegisterMax = duoBytes / 2
	for _, lent := range []bool{false, true} {
		d, _ := newLending(t, rendezvous.Auto, caps)
		d.submit(1, inLent(duoMessage(shm.OpRecv, 3, 0, 0)))
		send := duoMessage(shm.OpSend, 4, 1, 0)
		if lent {
			send = inLent(send)
		}
		d.submit(0, send)
		d.run()
		want := shm.OpMatched
		if lent {
			want = shm.OpDone
		}
		if e := d.ports[1].ended; len(e) != 1 || e[0].Op != want {
			t.Errorf("from lent memory %v: the receiver is told %+v, want op %d", lent, e, want)
		}
	}
}

// TestUnexpose checks that lent memory is given back when no message uses it any more, and not
// before.
func TestUnexpose(t *testing.T) {
	d, known := newLending(t, rendezvous.Auto, lending)
	d.submit(0, inLent(duoMessage(shm.OpSend, 4, 1, 0)))
	d.submit(1, inLent(duoMessage(shm.OpRecv, 3, 0, 0)))
	for i := range d.cores {
		d.submit(i, onExposure(shm.OpUnexpose, 8, 0))
		if len(d.ports[i].ended) != 0 || len(known[i]) != 1 {
			t.Fatalf("pod %d: the memory is given back while a message uses it", i)
		}
		again := inLent(duoMessage(shm.OpSend, 5, 1, 0))
		if err := d.cores[i].Submit(d.now, 0, &again); err == nil {
			t.Errorf("pod %d: another message may use it", i)
		}
	}
	d.run()
	for i, p := range d.ports {
		if len(p.ended) != 2 || p.ended[0].Status != shm.StatusOK || p.ended[1].Status != shm.StatusOK || len(known[i]) != 0 {
			t.Errorf("pod %d: %+v, %d pieces are lent", i, p.ended, len(known[i]))
		} else if p.ended[1].Req != 8 {
			t.Errorf("pod %d: the memory is given back before its message has ended: %+v", i, p.ended)
		}
	}
	d.submit(0, onExposure(shm.OpExpose, 8, 0)) // the number is free again
}

// TestLentOutlivesItsRank: a rank ends while the device reads into its memory, or from it. Its
// session ends only after the read has ended, because then its context is closed.
func TestLentOutlivesItsRank(t *testing.T) {
	for dies, what := range []string{"the sender", "the receiver"} {
		d, _ := newLending(t, rendezvous.Auto, lending)
		d.ports[1].slow = true
		d.submit(1, inLent(duoMessage(shm.OpRecv, 3, 0, 0)))
		d.submit(0, inLent(duoMessage(shm.OpSend, 4, 1, 0)))
		d.run()
		if len(d.ports[1].parked) != 1 {
			t.Fatalf("%d reads are under way", len(d.ports[1].parked))
		}
		c := d.cores[dies]
		c.Detach(d.now, 0, errors.New("killed"))
		for c.Advance(d.now) > 0 {
		}
		d.run()
		if gone := c.sessions[0] == nil; gone && dies == 1 {
			t.Errorf("%s: its session is over while its memory is read into", what)
		}
		if _, there := d.keys[1]; there && dies == 0 {
			t.Errorf("%s: its memory may be read still", what)
		}
		d.ports[1].parked[0]()
		for range 3 {
			d.run()
			for c.Advance(d.now) > 0 {
			}
		}
		if c.sessions[0] != nil || len(d.keys) != 0 {
			t.Errorf("%s: its session is not over, %d keys are left", what, len(d.keys))
		}
	}
}

// TestReadFromTheDead: a receive whose peer has left, and is lost while its message is being
// read, ends with the read, whether its memory is lent or of the arena.
func TestReadFromTheDead(t *testing.T) {
	for what, recv := range map[string]shm.Descriptor{
		"lent": inLent(duoMessage(shm.OpRecv, 3, 0, 0)), "of the arena": duoMessage(shm.OpRecv, 3, 0, 0),
	} {
		d, _ := newLending(t, rendezvous.Auto, lending)
		d.ports[1].slow = true
		d.submit(1, recv)
		d.submit(0, inLent(duoMessage(shm.OpSend, 4, 1, 0)))
		d.run()
		settle := func() {
			for range 3 {
				d.run()
				for d.cores[0].Advance(d.now)+d.cores[1].Advance(d.now) > 0 {
				}
			}
		}
		d.cores[0].Detach(d.now, 0, nil)
		settle()
		if !d.cores[1].peers[0].Gone() {
			t.Fatal("the peer has not said goodbye")
		}
		d.cores[1].PeerLost(d.now, 0, errors.New("it is silent"))
		settle()
		if len(d.ports[1].ended) != 0 {
			t.Fatalf("%s: %+v while the link reads", what, d.ports[1].ended)
		}
		d.ports[1].parked[0]()
		settle()
		if e := d.ports[1].ended; len(e) == 0 || e[len(e)-1].Op != shm.OpDone || e[len(e)-1].Status != shm.StatusPeerLeft {
			t.Errorf("%s: the receive does not end: %+v", what, e)
		}
	}
}

// TestLentLies checks that a session ends with each descriptor of lent memory that no correct
// client sends.
func TestLentLies(t *testing.T) {
	body := func(x shm.Descriptor, addr, n, aux uint64) shm.Descriptor {
		x.SetBody(addr, n, aux, 0)
		return x
	}
	early := duoMessage(shm.OpStage, 3, 0, 0)
	for what, x := range map[string]shm.Descriptor{
		"a number that is used":         onExposure(shm.OpExpose, 1, 0),
		"a number that is too large":    onExposure(shm.OpExpose, 1, shm.MaxExposures),
		"no bytes":                      body(shm.Descriptor{Op: shm.OpExpose, Req: 1}, 5, 0, 1),
		"too many bytes":                body(shm.Descriptor{Op: shm.OpExpose, Req: 1}, 5, 1<<shm.ExposureShift, 1),
		"the end of what is not there":  onExposure(shm.OpUnexpose, 1, 1),
		"the end of number 2^40":        onExposure(shm.OpUnexpose, 1, 1<<40),
		"a message beyond the end":      body(inLent(shm.Descriptor{Op: shm.OpSend, Req: 1, Peer: 1}), 1, duoBytes, 0),
		"one of what is not there":      body(inLent(shm.Descriptor{Op: shm.OpSend, Req: 1, Peer: 1}), 1<<shm.ExposureShift, 1, 0),
		"a receive that wraps":          body(inLent(shm.Descriptor{Op: shm.OpRecv, Req: 1}), 1, ^uint64(0), 0),
		"a window":                      body(inLent(shm.Descriptor{Op: shm.OpWin, Req: 1, Context: 5}), 0, 8, 0),
		"a chunk that is not asked for": early,
	} {
		d, _ := newLending(t, rendezvous.Auto, lending)
		d.submit(0, inLent(duoMessage(shm.OpRecv, 3, 1, 0)))
		if err := d.cores[0].Submit(d.now, 0, &x); err == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
}

// TestLendNowhere checks that a session whose link cannot lend memory gets StatusUnsupported.
func TestLendNowhere(t *testing.T) {
	d := newDuo(t, rendezvous.Auto, lending)
	d.submit(0, onExposure(shm.OpExpose, 9, 0))
	if _, status := d.last(0); status != shm.StatusUnsupported {
		t.Errorf("status %d, want unsupported", status)
	}
}
