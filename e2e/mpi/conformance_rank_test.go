//go:build mpi

package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// The scenarios of clientlib/c/test/conformance.c with the Go client: the same messages in the same
// order, so that the partner may use either client.

// player is a rank; the lower half leads.
type player struct {
	ctx     context.Context
	session *outrigger.Session
	world   *outrigger.Comm
	partner int
	leads   bool
	name    string
}

func (p *player) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("conformance (Go): rank %d: %s: %v", p.world.Rank(), p.name, err))
	}
}

func (p *player) want(good bool, format string, a ...any) {
	if !good {
		p.must(fmt.Errorf(format, a...))
	}
}

func pattern(rank, tag, at int) byte { return byte(at*31 + tag*7 + rank*13 + at/251) }

func fill(b []byte, rank, tag int) {
	for i := range b {
		b[i] = pattern(rank, tag, i)
	}
}

func (p *player) check(b []byte, tag int) {
	for i := range b {
		p.want(b[i] == pattern(p.partner, tag, i), "byte %d of %d with tag %d is %#x", i, len(b), tag, b[i])
	}
}

func (p *player) isend(b []byte, tag int) outrigger.Request {
	r, err := outrigger.Isend(p.world, b, p.partner, tag)
	p.must(err)
	return r
}

func (p *player) irecv(b []byte, tag int) outrigger.Request {
	r, err := outrigger.Irecv(p.world, b, p.partner, tag)
	p.must(err)
	return r
}

func (p *player) finish(r outrigger.Request) outrigger.Status {
	st, err := r.Wait(p.ctx)
	p.must(err)
	return st
}

func (p *player) swapEmpty(tag int) {
	r, s := p.irecv(nil, tag), p.isend(nil, tag)
	p.finish(s)
	p.finish(r)
}

func (p *player) memory(shared bool, n int) []byte {
	if !shared {
		return make([]byte, n)
	}
	b, err := outrigger.Alloc[byte](p.session, n)
	p.must(err)
	return b
}

func (p *player) sizes(shared bool) {
	for i, n := range []int{0, 1, 31, 32, 33, 64, 4096, 8191, 8192, 8193, 8256, 8257, 65535, 65536, 65537, 262144, 1048579} {
		out, in := p.memory(shared, n), p.memory(shared, n)
		fill(out, p.world.Rank(), i)
		r, s := p.irecv(in, i), p.isend(out, i)
		p.finish(s)
		st := p.finish(r)
		p.want(st.Bytes == n && st.Source == p.partner && st.Tag == i, "%d bytes became %+v", n, st)
		p.check(in, i)
		if shared && n > 0 {
			p.must(errors.Join(outrigger.Free(p.session, out), outrigger.Free(p.session, in)))
		}
	}
}

func (p *player) unexpected() {
	const n, bytes = 20, 9000
	if !p.leads {
		p.swapEmpty(100)
		for i := n - 1; i >= 0; i-- {
			b := make([]byte, bytes)
			p.check(b[:p.finish(p.irecv(b, i)).Bytes], i)
		}
		return
	}
	var s []outrigger.Request
	for i := range n {
		b := make([]byte, map[bool]int{true: bytes, false: 20}[i%2 == 1])
		fill(b, p.world.Rank(), i)
		s = append(s, p.isend(b, i))
	}
	p.swapEmpty(100)
	p.must(outrigger.WaitAll(p.ctx, s))
}

func (p *player) order() {
	const n = 500
	var s []outrigger.Request
	for i := range uint32(n) {
		v := make([]uint32, 700)
		if !p.leads {
			_, err := outrigger.Recv(p.ctx, p.world, v, outrigger.AnySource, outrigger.AnyTag)
			p.must(err)
			p.want(v[0] == i, "message %d came as number %d", v[0], i)
			continue
		}
		if v[0] = i; i%3 != 0 {
			v = v[:1]
		}
		r, err := outrigger.Isend(p.world, v, p.partner, 5)
		p.must(err)
		s = append(s, r)
	}
	p.must(outrigger.WaitAll(p.ctx, s))
}

func (p *player) truncated() {
	for i, n := range []int{20, 100, 9000, 200000} {
		b := make([]byte, n)
		if p.leads {
			fill(b, p.world.Rank(), i)
			p.finish(p.isend(b, i))
			continue
		}
		b[n-5] = 0xee
		_, err := p.irecv(b[:n-5], i).Wait(p.ctx)
		p.want(errors.Is(err, outrigger.ErrTruncated), "%d bytes into %d: %v", n, n-5, err)
		p.want(b[n-5] == 0xee, "bytes beyond a buffer of %d were written", n-5)
	}
	p.swapEmpty(101)
}

func (p *player) synchronous() {
	b := make([]byte, 40)
	if !p.leads {
		p.swapEmpty(102)
		p.finish(p.irecv(b, 1))
		return
	}
	r, err := outrigger.Issend(p.world, b, p.partner, 1)
	p.must(err)
	_, over, err := r.Test()
	p.must(err)
	p.want(!over, "a synchronous send has ended before its receive")
	p.swapEmpty(102)
	p.finish(r)
}

func (p *player) own() {
	me := p.world.Rank()
	for i, n := range []int{33, 64, 4096, 8191, 8192} { // sends of smaller ones complete when they are in the ring
		out, in := p.memory(true, n), p.memory(true, n)
		fill(out, me, i)
		r, err := outrigger.Irecv(p.world, in, me, i)
		p.must(err)
		s, err := outrigger.Isend(p.world, out, me, i)
		p.must(err)
		p.finish(s)
		_, over, err := r.Test()
		p.must(err)
		p.want(over && bytes.Equal(in, out), "%d bytes to itself were sent, and have not come", n)
		p.must(errors.Join(outrigger.Free(p.session, out), outrigger.Free(p.session, in)))
	}
}

func (p *player) cancelled() {
	for _, n := range []int{8, 1000, 100000} {
		r := p.irecv(make([]byte, n), 77)
		p.must(r.Cancel())
		_, err := r.Wait(p.ctx)
		p.want(errors.Is(err, outrigger.ErrCancelled), "a cancelled receive: %v", err)
	}
	p.swapEmpty(103)
}

func (p *player) probed() {
	b := make([]byte, 9000)
	if p.leads {
		p.swapEmpty(104)
		fill(b[:300], p.world.Rank(), 9)
		p.finish(p.isend(b[:300], 9))
		fill(b, p.world.Rank(), 10)
		p.finish(p.isend(b, 10))
		return
	}
	_, found, err := p.world.Iprobe(outrigger.AnySource, 9)
	p.must(err)
	p.want(!found, "a probe found a message before it was sent")
	p.swapEmpty(104)
	st, err := p.world.Probe(p.ctx, outrigger.AnySource, 9)
	p.must(err)
	p.want(st.Bytes == 300 && st.Source == p.partner, "a probe found %+v", st)
	p.finish(p.irecv(b[:300], 9))
	p.check(b[:300], 9)
	m, err := p.world.Mprobe(p.ctx, outrigger.AnySource, 10)
	p.must(err)
	_, err = outrigger.MrecvInto(p.ctx, m, b)
	p.must(err)
	p.check(b, 10)
}

func (p *player) crowded() {
	const n, bytes = 24, 700001
	var s, r []outrigger.Request
	in := make([][]byte, n)
	for i := range n {
		b := make([]byte, bytes)
		fill(b, p.world.Rank(), i)
		s = append(s, p.isend(b, i))
	}
	for i := n - 1; i >= 0; i-- {
		in[i] = make([]byte, bytes)
		r = append(r, p.irecv(in[i], i))
	}
	p.must(errors.Join(outrigger.WaitAll(p.ctx, r), outrigger.WaitAll(p.ctx, s)))
	for i := range in {
		p.check(in[i], i)
	}
}

func (p *player) flood() {
	const n = 6000
	v := make([]int32, 2)
	var s []outrigger.Request
	for i := range int32(n) {
		r, err := outrigger.Isend(p.world, []int32{i, 0}, p.partner, 6)
		p.must(err)
		s = append(s, r)
		if i%2 == 0 {
			_, err := outrigger.Recv(p.ctx, p.world, v, p.partner, 6)
			p.must(err)
			p.want(v[0] == i/2, "message %d came as number %d", i/2, v[0])
		}
	}
	for i := range int32(n / 2) {
		_, err := outrigger.Recv(p.ctx, p.world, v, p.partner, 6)
		p.must(err)
		p.want(v[0] == n/2+i, "message %d came as number %d", n/2+i, v[0])
	}
	p.must(outrigger.WaitAll(p.ctx, s))
}

func (p *player) inUse() {
	for i, n := range []int{20, 9000, 300000} {
		b := p.memory(true, n+100)
		mid := b[50 : 50+n]
		fill(mid, p.world.Rank(), i)
		if p.leads {
			s, err := outrigger.Issend(p.world, mid, p.partner, i)
			p.must(err)
			p.want(n <= 20 || outrigger.Free(p.session, b) != nil, "memory from which %d bytes are sent can be freed", n)
			p.swapEmpty(102)
			p.finish(s)
		} else {
			r := p.irecv(mid, i+10)
			p.want(outrigger.Free(p.session, b) != nil, "memory into which %d bytes are received can be freed", n)
			p.must(r.Cancel())
			_, err := r.Wait(p.ctx)
			p.want(errors.Is(err, outrigger.ErrCancelled), "a receive is not cancelled: %v", err)
			p.swapEmpty(102)
			p.finish(p.irecv(mid, i))
		}
		p.must(outrigger.Free(p.session, b))
	}
}

// play plays all scenarios and returns the exit code.
func play() (code int) {
	defer func() {
		if what := recover(); what != nil {
			fmt.Fprintln(os.Stderr, what)
			code = 1
		}
	}()
	p := &player{ctx: context.Background(), name: "open"}
	var err error
	if p.session, err = outrigger.Open(p.ctx, outrigger.Config{}); err != nil {
		panic(err)
	}
	p.world = p.session.World()
	half := p.world.Size() / 2
	p.leads, p.partner = p.world.Rank() < half, (p.world.Rank()+half)%p.world.Size()
	scenarios := []struct {
		name string
		play func()
	}{
		{"private memory", func() { p.sizes(false) }},
		{"shared memory", func() { p.sizes(true) }},
		{"unexpected", p.unexpected},
		{"order", p.order},
		{"truncated", p.truncated},
		{"synchronous", p.synchronous},
		{"to itself", p.own},
		{"cancelled", p.cancelled},
		{"probed", p.probed},
		{"crowded", p.crowded},
		{"flood", p.flood},
		{"in use", p.inUse},
	}
	for i, s := range scenarios {
		p.name = s.name
		s.play()
		p.swapEmpty(1000 + i)
	}
	p.name = "close"
	p.must(p.session.Close())
	fmt.Printf("conformance: rank %d played %d scenarios\n", p.world.Rank(), len(scenarios))
	return 0
}
