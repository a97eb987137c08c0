package outrigger

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestErrorNamesWorldRanks: the error for a rank of a communicator has its world rank, which
// the launcher and the errors of other ranks use.
func TestErrorNamesWorldRanks(t *testing.T) {
	s := &Session{rank: 3}
	pair := &Comm{session: s, rank: 1, group: newGroup([]uint32{2, 3})}
	world := &Comm{session: s, rank: 3, group: &group{size: 4}}
	cause := errors.New("no")
	for want, err := range map[string]error{
		"outrigger: rank 1 of the communicator (world rank 3): recv with rank 0 (world rank 2) tag 7 (80 bytes): no": s.fail("recv", pair, 0, 7, 80, cause),
		"outrigger: rank 1 of the communicator (world rank 3): send with rank 9 tag 7: no":                           s.fail("send", pair, 9, 7, 0, cause),
		"outrigger: rank 1 of the communicator (world rank 3): barrier: no":                                          s.fail("barrier", pair, AnySource, AnyTag, 0, cause),
		"outrigger: rank 3: recv with rank 0 tag 7 (256 MiB): no":                                                    s.fail("recv", world, 0, 7, 256<<20, cause),
		"outrigger: rank 3: alloc (1 MiB, 1048577 bytes): no":                                                        s.fail("alloc", nil, AnySource, AnyTag, 1<<20+1, cause),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// TestErrorsWithoutAMessage: the error of a call that ends without a message has the requested
// envelope: the completion of such a probe has no envelope, and that of a receive has only
// what was requested.
func TestErrorsWithoutAMessage(t *testing.T) {
	s, f := attachTo(t, shape{ranks: 4})
	ctx, w := t.Context(), s.World()
	recv := func(src, tag int) error {
		_, err := Recv(ctx, w, make([]byte, 10), src, tag)
		return err
	}
	for want, c := range map[string]struct {
		op   shm.Op
		end  shm.Descriptor
		call func() error
	}{
		"probe with rank 1 tag 5: the job has failed":                                {shm.OpProbe, shm.Descriptor{Status: shm.StatusAborted}, func() error { _, err := w.Probe(ctx, 1, 5); return err }},
		"iprobe with rank 1 tag 5: the job has failed":                               {shm.OpProbe, shm.Descriptor{Status: shm.StatusAborted}, func() error { _, _, err := w.Iprobe(1, 5); return err }},
		"mprobe tag 5: the job has failed":                                           {shm.OpMprobe, shm.Descriptor{Status: shm.StatusAborted}, func() error { _, err := w.Mprobe(ctx, AnySource, 5); return err }},
		"probe with rank 1: the peer has failed or left: it has":                     {shm.OpProbe, shm.Descriptor{Status: shm.StatusPeerLeft}, func() error { _, err := w.Probe(ctx, 1, AnyTag); return err }},
		"recv with rank 1 (10 bytes): the job has failed":                            {shm.OpRecv, shm.Descriptor{Status: shm.StatusAborted, Peer: 1}, func() error { return recv(1, AnyTag) }},
		"recv (10 bytes): the job has failed":                                        {shm.OpRecv, shm.Descriptor{Status: shm.StatusAborted}, func() error { return recv(AnySource, AnyTag) }},
		"recv with rank 2 tag 6 (10 bytes): the peer has failed or left":             {shm.OpRecv, shm.Descriptor{Status: shm.StatusPeerFailed, Peer: 2, Tag: 6}, func() error { return recv(AnySource, AnyTag) }},
		"recv with rank 2 tag 6 (10 bytes): the message is longer than the buffer: ": {shm.OpRecv, shm.Descriptor{Status: shm.StatusTruncated, Peer: 2, Tag: 6}, func() error { return recv(AnySource, AnyTag) }},
	} {
		wait := f.answering(func() {
			c.end.Op, c.end.Req = shm.OpDone, f.next(c.op).Req
			f.tell(c.end)
		})
		if err := c.call(); !contains(err, ": "+want) {
			t.Errorf("%v, want %q", err, want)
		}
		wait()
	}
}

// TestTypesOfMessages: the error for a message of another type than the buffer's names both
// types. Raw bytes, and a message of an unknown type, are received into every buffer.
func TestTypesOfMessages(t *testing.T) {
	s, f := attachTo(t, shape{ranks: 2})
	ctx, w := t.Context(), s.World()
	recv := func(status shm.Status, typ uint8, bytes int, call func() error) error {
		wait := f.answering(func() {
			end := shm.Descriptor{Op: shm.OpDone, Req: f.next(shm.OpRecv).Req, Status: status, Peer: 1, Tag: 3}
			if typ != 0 {
				end.Flags, end.Context = shm.FlagTyped, uint32(typ)
			}
			end.SetBody(0, uint64(bytes), 0, 0)
			f.tell(end)
		})
		defer wait()
		return call()
	}
	doubles := func() error { _, err := Recv(ctx, w, make([]float64, 10), 1, 3); return err }
	raw := func() error { _, err := Recv(ctx, w, make([]byte, 80), 1, 3); return err }
	for name, c := range map[string]struct {
		status shm.Status
		typ    uint8
		call   func() error
		want   string
	}{
		"the same":          {shm.StatusOK, shm.TypeFloat64, doubles, ""},
		"not known":         {shm.StatusOK, 0, doubles, ""},
		"of a later client": {shm.StatusOK, 200, doubles, ""},
		"into bytes":        {shm.StatusOK, shm.TypeFloat32, raw, ""},
		"another":           {shm.StatusOK, shm.TypeInt64, doubles, "recv with rank 1 tag 3 (80 bytes): invalid argument: the message has elements of type int64, and the buffer float64"},
		"another, too long": {shm.StatusTruncated, shm.TypeFloat32, doubles, "elements of type float32, and the buffer float64"},
	} {
		err := recv(c.status, c.typ, 80, c.call)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrInvalid) || !contains(err, c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	type celsius float32
	for want, send := range map[uint8]func() error{
		shm.TypeFloat32:    func() error { return Send(ctx, w, []celsius{1}, 1, 3) },
		shm.TypeInt64:      func() error { return Send(ctx, w, []int{1}, 1, 3) },
		0:                  func() error { return Send(ctx, w, []byte{1}, 1, 3) },
		shm.TypeComplex128: func() error { return Send(ctx, w, []complex128{1}, 1, 3) },
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
		d := f.next(shm.OpSend)
		if typed := d.Flags&shm.FlagTyped != 0; typed != (want != 0) || uint8(d.Status) != want {
			t.Errorf("sent with flags %#x and type %d, want type %d", d.Flags, d.Status, want)
		}
	}
	s, f = attachTo(t, shape{ranks: 2, features: shm.FeaturesRequired})
	if err := Send(ctx, s.World(), []float32{1}, 1, 3); err != nil {
		t.Fatal(err)
	}
	if d := f.next(shm.OpSend); d.Flags&shm.FlagTyped != 0 || d.Status != 0 {
		t.Errorf("a sidecar without the feature gets flags %#x and type %d", d.Flags, d.Status)
	}
}

// TestCartAndIncludeRefuse: the arguments of Include and Cart are checked before the rank
// communicates.
func TestCartAndIncludeRefuse(t *testing.T) {
	s, f := attachTo(t, shape{ranks: 2})
	_, include := s.World().Include(t.Context(), []int{1, 1})
	_, grid := s.World().Cart(t.Context(), []int{3, 1 << 62}, nil)
	_, circle := s.World().Cart(t.Context(), []int{2}, []bool{true, true})
	for _, err := range []error{include, grid, circle} {
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%v is no *Error of ErrInvalid", err)
		}
	}
	f.quiet()
}

// TestMistakesAreNamed: the error for wrong memory or a wrong list names the mistake.
func TestMistakesAreNamed(t *testing.T) {
	s, f := attachTo(t, shape{ranks: 3})
	b, err := Alloc[int32](s, 100)
	if err != nil {
		t.Fatal(err)
	}
	_, twice := s.World().Include(t.Context(), []int{2, 0, 2})
	_, beyond := s.World().Include(t.Context(), []int{0, 3})
	for want, err := range map[string]error{
		"free (396 bytes): invalid argument: the slice begins within an allocation; free the one that Alloc returned": Free(s, b[1:]),
		"free (12 bytes): not memory from Alloc, or freed already":                                                    Free(s, make([]int32, 3)),
		"include: invalid argument: rank 2 is in the list twice":                                                      twice,
		"include: invalid argument: rank 3 in the list, of a communicator of 3":                                       beyond,
	} {
		if !contains(err, want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := Free(s, b); err != nil {
		t.Error(err)
	}
	if err := Free(s, b); !errors.Is(err, ErrNotAllocated) {
		t.Errorf("freed twice: %v", err)
	}
	f.quiet()
}

// TestDifference: two lists with equal beginnings are shown so that their difference is
// visible.
func TestDifference(t *testing.T) {
	mine, theirs := []int64{1, 10, 0, 1, 2, 3, 4, 5, 6, 7}, []int64{2, 10, 0, 1, 2, 3, 4, 5, 6, 7}
	if got, want := difference(mine, theirs, 3), "10 numbers that begin with [0 1 2 3 4 5 6 7] here; rank 3 gives the same numbers up to there, and differs after them; all ranks must give the same"; got != want {
		t.Errorf("%s", got)
	}
	mine[1], theirs[1] = 2, 1
	if got, want := difference(mine, theirs, 0), "[0 1] here, [0] at rank 0; all ranks must give the same"; got != want {
		t.Errorf("%s", got)
	}
}
