// Command tour uses every part of the client library once, with any number of ranks
// from 2 up, and checks the results.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	t := &tour{ctx: ctx, s: s, c: s.World()}
	t.me, t.n = t.c.Rank(), t.c.Size()
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"messages", t.messages},
		{"probes", t.probes},
		{"cancel", t.cancel},
		{"truncation", t.truncation},
		{"collectives", t.collectives},
		{"in place", t.inPlace},
		{"user operation", t.userOperation},
		{"communicators", t.communicators},
		{"grids", t.grids},
		{"indexed", t.indexed},
		{"structs", t.structs},
		{"window", t.window},
		{"epochs", t.epochs},
	} {
		if err := part.run(); err != nil {
			return fmt.Errorf("rank %d: %s: %w", t.me, part.name, err)
		}
		if err := t.c.Barrier(ctx); err != nil {
			return err
		}
		if t.me == 0 {
			fmt.Println(part.name, "right")
		}
	}
	return s.Close()
}

type tour struct {
	ctx   context.Context
	s     *outrigger.Session
	c     *outrigger.Comm
	me, n int
}

func equal[T comparable](what string, got, want []T) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
	return nil
}

// messages exchanges private memory of many sizes with both neighbours.
func (t *tour) messages() error {
	next, previous := (t.me+1)%t.n, (t.me+t.n-1)%t.n
	for _, n := range []int{0, 1, 32, 33, 8192, 8193, 65536, 65537, 1_000_000} {
		out, in := make([]byte, n), make([]byte, n)
		for i := range out {
			out[i] = byte(i * (t.me + 1))
		}
		r, err := outrigger.Irecv(t.c, in, outrigger.AnySource, outrigger.AnyTag)
		if err != nil {
			return err
		}
		if err := outrigger.Ssend(t.ctx, t.c, out, next, n%1000); err != nil {
			return err
		}
		st, err := r.Wait(t.ctx)
		if err != nil {
			return err
		}
		if st.Source != previous || st.Bytes != n || st.Tag != n%1000 {
			return fmt.Errorf("%d bytes: status %+v", n, st)
		}
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(i * (previous + 1))
		}
		if err := equal(fmt.Sprint(n, " bytes"), in, want); err != nil {
			return err
		}
		if err := t.c.Barrier(t.ctx); err != nil { // the wildcard must not meet the next size
			return err
		}
	}
	return nil
}

func (t *tour) probes() error {
	next, previous := (t.me+1)%t.n, (t.me+t.n-1)%t.n
	if _, ok, err := t.c.Iprobe(previous, 5); ok || err != nil {
		return fmt.Errorf("a probe before any send found a message: %v %w", ok, err)
	}
	if err := t.c.Barrier(t.ctx); err != nil {
		return err
	}
	r, err := outrigger.Isend(t.c, []int32{7, 8, int32(t.me)}, next, 5)
	if err != nil {
		return err
	}
	st, err := t.c.Probe(t.ctx, outrigger.AnySource, 5)
	if err != nil {
		return err
	}
	if st.Source != previous || outrigger.Count[int32](st) != 3 {
		return fmt.Errorf("probe says %+v", st)
	}
	m, err := t.c.Mprobe(t.ctx, previous, outrigger.AnyTag)
	if err != nil {
		return err
	}
	in := make([]int32, 3)
	if _, err := outrigger.MrecvInto(t.ctx, m, in); err != nil {
		return err
	}
	if err := equal("probed message", in, []int32{7, 8, int32(previous)}); err != nil {
		return err
	}
	_, err = r.Wait(t.ctx)
	return err
}

func (t *tour) cancel() error {
	for _, n := range []int{8, 5000, 100_000} {
		r, err := outrigger.Irecv(t.c, make([]byte, n), outrigger.AnySource, 999)
		if err != nil {
			return err
		}
		if err := r.Cancel(); err != nil {
			return err
		}
		if _, err := r.Wait(t.ctx); !errors.Is(err, outrigger.ErrCancelled) {
			return fmt.Errorf("receive of %d bytes: %w, want ErrCancelled", n, err)
		}
		out, err := outrigger.Issend(t.c, make([]byte, n), (t.me+1)%t.n, 998)
		if err != nil {
			return err
		}
		if err := out.Cancel(); err != nil {
			return err
		}
		if _, err := out.Wait(t.ctx); !errors.Is(err, outrigger.ErrCancelled) {
			return fmt.Errorf("send of %d bytes: %w, want ErrCancelled", n, err)
		}
	}
	ctx, stop := context.WithCancel(t.ctx)
	stop()
	if _, err := outrigger.Recv(ctx, t.c, make([]byte, 8), outrigger.AnySource, 997); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("receive with an ended context: %w", err)
	}
	return nil
}

func (t *tour) truncation() error {
	next, previous := (t.me+1)%t.n, (t.me+t.n-1)%t.n
	for _, n := range []int{16, 4000, 60_000, 200_000} {
		r, err := outrigger.Isend(t.c, make([]byte, n), next, 3)
		if err != nil {
			return err
		}
		if _, err := outrigger.Recv(t.ctx, t.c, make([]byte, n/2), previous, 3); !errors.Is(err, outrigger.ErrTruncated) {
			return fmt.Errorf("%d bytes into %d: %w", n, n/2, err)
		}
		if _, err := r.Wait(t.ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *tour) collectives() error {
	for _, n := range []int{1, 3, 1000, 40_000} {
		mine, sum := make([]float64, n), make([]float64, n)
		want, scan := make([]float64, n), make([]float64, n)
		for i := range mine {
			mine[i] = float64(t.me + i)
			for r := range t.n {
				want[i] += float64(r + i)
				if r <= t.me {
					scan[i] += float64(r + i)
				}
			}
		}
		if err := errors.Join(outrigger.Allreduce(t.ctx, t.c, mine, sum, outrigger.Sum), equal("allreduce", sum, want)); err != nil {
			return err
		}
		if err := errors.Join(outrigger.Scan(t.ctx, t.c, mine, sum, outrigger.Sum), equal("scan", sum, scan)); err != nil {
			return err
		}
		all, wantAll := make([]float64, n*t.n), make([]float64, n*t.n)
		for i := range wantAll {
			wantAll[i] = float64(i/n + i%n)
		}
		if err := errors.Join(outrigger.Allgather(t.ctx, t.c, mine, all), equal("allgather", all, wantAll)); err != nil {
			return err
		}
		root := n % t.n
		back := make([]float64, n)
		clear(all)
		if err := outrigger.Gather(t.ctx, t.c, mine, all, root); err != nil {
			return err
		}
		if t.me == root {
			if err := equal("gather", all, wantAll); err != nil {
				return err
			}
		}
		if err := errors.Join(outrigger.Scatter(t.ctx, t.c, all, back, root), equal("scatter", back, mine)); err != nil {
			return err
		}
		copy(back, mine)
		if err := outrigger.Bcast(t.ctx, t.c, back, root); err != nil {
			return err
		}
		if err := equal("bcast", back, wantAll[root*n:root*n+n]); err != nil {
			return err
		}
		block := make([]float64, n)
		r, err := outrigger.IreduceScatter(t.c, wantAll, block, nil, outrigger.Sum)
		if err != nil {
			return err
		}
		if _, err := r.Wait(t.ctx); err != nil {
			return err
		}
		for i := range block {
			if block[i] != float64(t.n*(t.me+i)) {
				return fmt.Errorf("reduce-scatter: element %d is %v", i, block[i])
			}
		}
		turned, wantTurned := make([]float64, n*t.n), make([]float64, n*t.n)
		for i := range wantAll {
			wantAll[i], wantTurned[i] = float64(t.me*1000+i/n), float64(i/n*1000+t.me)
		}
		if err := errors.Join(outrigger.Alltoall(t.ctx, t.c, wantAll, turned), equal("alltoall", turned, wantTurned)); err != nil {
			return err
		}
	}
	return nil
}

// userOperation multiplies 2x2 matrices, which does not commute.
func (t *tour) userOperation() error {
	op := outrigger.OpFunc(false, func(inout, in []int64) {
		for i := 0; i+3 < len(in); i += 4 {
			a, b := in[i:i+4], inout[i:i+4]
			copy(b, []int64{a[0]*b[0] + a[1]*b[2], a[0]*b[1] + a[1]*b[3], a[2]*b[0] + a[3]*b[2], a[2]*b[1] + a[3]*b[3]})
		}
	})
	want := []int64{1, 0, 0, 1}
	for r := range t.n {
		k := int64(r + 2)
		want = []int64{want[0]*k + want[1], want[0], want[2]*k + want[3], want[2]}
	}
	got := make([]int64, 4)
	// The operation needs whole matrices. A message of four numbers is never split.
	err := outrigger.Allreduce(t.ctx, t.c, []int64{int64(t.me + 2), 1, 1, 0}, got, op)
	return errors.Join(err, equal("product of matrices", got, want))
}

func (t *tour) communicators() error {
	half, err := t.c.Split(t.ctx, t.me%2, -t.me)
	if err != nil {
		return err
	}
	got := make([]int32, half.Size())
	if err := outrigger.Allgather(t.ctx, half, []int32{int32(t.me)}, got); err != nil {
		return err
	}
	for i := 1; i < len(got); i++ {
		if got[i] >= got[i-1] || got[i]%2 != int32(t.me%2) {
			return fmt.Errorf("members of the half: %v", got)
		}
	}
	again, err := half.Dup(t.ctx)
	if err != nil {
		return err
	}
	if again.Size() != half.Size() || again.Rank() != half.Rank() {
		return fmt.Errorf("the duplicate has rank %d of %d", again.Rank(), again.Size())
	}
	return errors.Join(again.Free(t.ctx), half.Free(t.ctx))
}

func (t *tour) window() error {
	local, err := outrigger.Alloc[int64](t.s, 40_000)
	if err != nil {
		return err
	}
	w, err := outrigger.NewWindow(t.ctx, t.c, local)
	if err != nil {
		return err
	}
	next, previous := (t.me+1)%t.n, (t.me+t.n-1)%t.n
	block := make([]int64, 30_000)
	for i := range block {
		block[i] = int64(t.me*100_000 + i)
	}
	if err := errors.Join(w.Put(t.ctx, block, next, 5000), w.Fence(t.ctx)); err != nil {
		return err
	}
	if local[5000] != int64(previous*100_000) || local[34_999] != int64(previous*100_000+29_999) {
		return fmt.Errorf("put: %d and %d", local[5000], local[34_999])
	}
	got := make([]int64, 30_000)
	if err := errors.Join(w.Get(t.ctx, got, next, 5000), equal("get", got, block), w.Fence(t.ctx)); err != nil {
		return err
	}
	for range 10 {
		if _, err := w.FetchOp(t.ctx, 1, 0, 0, outrigger.Sum); err != nil {
			return err
		}
		if err := w.Accumulate(t.ctx, []int64{2, 3}, 0, 1, outrigger.Sum); err != nil {
			return err
		}
		if err := w.Lock(t.ctx, 0, true); err != nil {
			return err
		}
		v := make([]int64, 1)
		err := w.Get(t.ctx, v, 0, 3)
		v[0]++
		if err := errors.Join(err, w.Put(t.ctx, v, 0, 3), w.Unlock(t.ctx, 0)); err != nil {
			return err
		}
	}
	if err := w.Fence(t.ctx); err != nil {
		return err
	}
	if t.me == 0 {
		n := int64(10 * t.n)
		if err := equal("counters", local[:4], []int64{n, 2 * n, 3 * n, n}); err != nil {
			return err
		}
	}
	if old, err := w.CompareAndSwap(t.ctx, 0, 9, t.me, 4); err != nil || old != 0 {
		return fmt.Errorf("compare and swap found %d: %w", old, err)
	}
	if old, err := w.CompareAndSwap(t.ctx, 0, 1, t.me, 4); err != nil || old != 9 {
		return fmt.Errorf("compare and swap found %d, want 9: %w", old, err)
	}
	if err := errors.Join(w.Put(t.ctx, block[:10], next, 39_995), w.Flush(t.ctx, next)); !errors.Is(err, outrigger.ErrInvalid) {
		return fmt.Errorf("put beyond the window: %w", err)
	}
	return w.Free(t.ctx)
}

// epochs synchronises each rank with its neighbours in a ring by post, start, complete and
// wait, and checks that its window has the data that the previous rank has put there.
func (t *tour) epochs() error {
	const n = 3000
	local, err := outrigger.Alloc[int64](t.s, n)
	if err != nil {
		return err
	}
	w, err := outrigger.NewWindow(t.ctx, t.c, local)
	if err != nil {
		return err
	}
	next, previous := []int{(t.me + 1) % t.n}, []int{(t.me + t.n - 1) % t.n}
	block, got := make([]int64, n), make([]int64, n/2)
	for round := range 5 {
		for i := range block {
			block[i] = int64(t.me*1_000_000 + round*100_000 + i)
		}
		// The data of the last round must have been checked before the window is posted.
		if err := errors.Join(w.Post(t.ctx, previous), w.Start(t.ctx, next)); err != nil {
			return err
		}
		if err := errors.Join(w.Put(t.ctx, block, next[0], 0), w.Complete(t.ctx), w.Wait(t.ctx)); err != nil {
			return err
		}
		for i, v := range local {
			if want := int64(previous[0]*1_000_000 + round*100_000 + i); v != want {
				return fmt.Errorf("round %d: element %d is %d, want %d", round, i, v, want)
			}
		}
		if err := errors.Join(w.Post(t.ctx, previous), w.Start(t.ctx, next), w.Get(t.ctx, got, next[0], n/2), w.Complete(t.ctx), w.Wait(t.ctx)); err != nil {
			return err
		}
		clear(local) // all gets from it have completed
		if err := equal("got in an epoch", got, block[n/2:]); err != nil {
			return err
		}
	}
	if err := w.Complete(t.ctx); !errors.Is(err, outrigger.ErrInvalid) {
		return fmt.Errorf("complete without start: %w", err)
	}
	return w.Free(t.ctx)
}

// grids checks a grid over a communicator with the ranks in reverse order, messages of
// every third element of a slice between its neighbours, and an exclusive scan.
func (t *tour) grids() error {
	turned := make([]int, t.n)
	for i := range turned {
		turned[i] = t.n - 1 - i
	}
	back, err := t.c.Include(t.ctx, turned)
	if err != nil {
		return err
	}
	line, err := back.Cart(t.ctx, []int{t.n}, nil)
	if err != nil {
		return err
	}
	src, dst := line.Shift(0, 1)
	buf, got := make([]int64, 12), []int64{-1, -1, -1, -1, -1, -1, -1, -1}
	for i := range buf {
		buf[i] = int64(100*line.Rank() + i)
	}
	r, err := outrigger.IrecvStrided(line.Comm, got, outrigger.Layout{Count: 4, Block: 1, Stride: 2}, src, 1)
	if err != nil {
		return err
	}
	if err := outrigger.SendStrided(t.ctx, line.Comm, buf, outrigger.Layout{Count: 4, Block: 1, Stride: 3}, dst, 1); err != nil {
		return err
	}
	st, err := r.Wait(t.ctx)
	if err != nil {
		return err
	}
	for i, v := range got {
		want := int64(-1)
		if i%2 == 0 && line.Rank() > 0 {
			want = int64(100*(line.Rank()-1) + 3*(i/2))
		}
		if v != want || line.Rank() != t.n-1-t.me || (st.Source == outrigger.NullRank) != (line.Rank() == 0) {
			return fmt.Errorf("%v from %d, element %d: want %d", got, st.Source, i, want)
		}
	}
	before := []int64{-5}
	if err := outrigger.Exscan(t.ctx, t.c, []int64{int64(t.me + 1)}, before, outrigger.Sum); err != nil {
		return err
	}
	if want := int64(t.me * (t.me + 1) / 2); before[0] != want && (t.me > 0 || before[0] != -5) {
		return fmt.Errorf("exscan gives %d, want %d", before[0], want)
	}
	return nil
}
