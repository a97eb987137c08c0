package coll

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// foldFunc sets dst to src op dst, or to dst op src if reversed.
type foldFunc func(dst, src []byte, reversed bool)

// machine runs the plans of all ranks in memory. A send completes only when its receive is
// posted, so that a schedule that relies on buffering becomes a deadlock. Data moves at a time
// that the seed chooses, so that memory that is still in use becomes a wrong result.
type machine struct {
	ranks   []*rankState
	sends   map[channel][]request
	recvs   map[channel][]request
	meeting [][2]request // a send and its receive, not yet moved
	ready   []int        // ranks that may start their next round
	fold    foldFunc
	rng     *rand.Rand
}

type rankState struct {
	plan    *Plan
	bufs    [3][]byte
	aliased bool // In and Out are the same memory
	round   int
	steps   []Step
	waiting int // messages of the round that are not complete
}

type channel struct {
	from, to int
	tag      uint32
}

type request struct{ rank, step int }

func newMachine(seed uint64, fold foldFunc) *machine {
	return &machine{
		sends: map[channel][]request{}, recvs: map[channel][]request{},
		fold: fold, rng: rand.New(rand.NewPCG(seed, 7)),
	}
}

// add adds the next rank with its plan, and memory of exactly the size that the plan requires.
func (m *machine) add(p *Plan, inPlace bool) *rankState {
	in, out := p.Extents()
	s := &rankState{plan: p, aliased: inPlace}
	s.bufs = [3][]byte{make([]byte, in), make([]byte, out), bytes.Repeat([]byte{0xa5}, int(p.Scratch()))}
	if inPlace {
		s.bufs[In] = make([]byte, max(in, out))
		s.bufs[Out] = s.bufs[In]
	}
	m.ready = append(m.ready, len(m.ranks))
	m.ranks = append(m.ranks, s)
	return s
}

func (m *machine) run() error {
	for len(m.ready) > 0 || len(m.meeting) > 0 {
		n := m.rng.IntN(len(m.ready) + len(m.meeting))
		var err error
		if n < len(m.ready) {
			rank := m.ready[n]
			m.ready = append(m.ready[:n], m.ready[n+1:]...)
			err = m.start(rank)
		} else {
			err = m.move(n - len(m.ready))
		}
		if err != nil {
			return err
		}
	}
	for rank, s := range m.ranks {
		if s.round != s.plan.Rounds() {
			return fmt.Errorf("deadlock: rank %d waits for %d messages in round %d: %+v", rank, s.waiting, s.round, s.steps)
		}
	}
	return nil
}

// start posts the messages of a rank's next round.
func (m *machine) start(rank int) error {
	s := m.ranks[rank]
	if s.round == s.plan.Rounds() {
		return nil
	}
	s.steps = s.plan.Round(s.round, s.steps[:0])
	s.waiting = 0
	if err := s.check(); err != nil {
		return fmt.Errorf("rank %d, round %d: %w", rank, s.round, err)
	}
	for i, step := range s.steps {
		switch step.Op {
		case Send:
			m.meet(channel{rank, int(step.Peer), step.Tag}, request{rank, i}, m.sends, m.recvs, false)
		case Recv:
			m.meet(channel{int(step.Peer), rank, step.Tag}, request{rank, i}, m.recvs, m.sends, true)
		default:
			continue
		}
		s.waiting++
	}
	if s.waiting == 0 {
		m.finish(rank)
	}
	return nil
}

// meet pairs a request with the oldest one of the other side, or queues it.
func (m *machine) meet(c channel, r request, mine, other map[channel][]request, recv bool) {
	if len(other[c]) == 0 {
		mine[c] = append(mine[c], r)
		return
	}
	pair := [2]request{r, other[c][0]}
	other[c] = other[c][1:]
	if recv {
		pair[0], pair[1] = pair[1], pair[0]
	}
	m.meeting = append(m.meeting, pair)
}

func (m *machine) move(n int) error {
	pair := m.meeting[n]
	m.meeting = append(m.meeting[:n], m.meeting[n+1:]...)
	from, to := m.ranks[pair[0].rank], m.ranks[pair[1].rank]
	out, in := from.steps[pair[0].step], to.steps[pair[1].step]
	if out.Len != in.Len {
		return fmt.Errorf("rank %d sends %d bytes, rank %d receives %d: %+v %+v",
			pair[0].rank, out.Len, pair[1].rank, in.Len, out, in)
	}
	copy(to.dst(in), from.src(out))
	for _, r := range pair {
		if s := m.ranks[r.rank]; s.waiting > 1 {
			s.waiting--
		} else {
			m.finish(r.rank)
		}
	}
	return nil
}

// finish runs the local steps of a round.
func (m *machine) finish(rank int) {
	s := m.ranks[rank]
	for _, step := range s.steps {
		switch step.Op {
		case Copy:
			copy(s.dst(step), s.src(step))
		case Fold:
			m.fold(s.dst(step), s.src(step), step.Reversed)
		}
	}
	s.waiting = 0
	s.round++
	m.ready = append(m.ready, rank)
}

func (s *rankState) dst(p Step) []byte { return s.bufs[p.Dst][p.DstOff : p.DstOff+p.Len] }

func (s *rankState) src(p Step) []byte { return s.bufs[p.Src][p.SrcOff : p.SrcOff+p.Len] }

// check returns an error for steps outside of the required memory, and for messages of one
// round whose memory overlaps.
func (s *rankState) check() error {
	for i, a := range s.steps {
		if a.Op != Send && !s.inside(a.Dst, a.DstOff, a.Len) || a.Op != Recv && !s.inside(a.Src, a.SrcOff, a.Len) {
			return fmt.Errorf("step outside its buffer: %+v", a)
		}
		if (a.Op == Copy || a.Op == Fold) && s.overlap(a.Dst, a.DstOff, a.Src, a.SrcOff, a.Len, a.Len) {
			return fmt.Errorf("source and target overlap: %+v", a)
		}
		if a.Op != Recv {
			continue
		}
		for j, b := range s.steps {
			clash := b.Op == Send && s.overlap(a.Dst, a.DstOff, b.Src, b.SrcOff, a.Len, b.Len) ||
				b.Op == Recv && i != j && s.overlap(a.Dst, a.DstOff, b.Dst, b.DstOff, a.Len, b.Len)
			if clash {
				return fmt.Errorf("messages under way overlap: %+v %+v", a, b)
			}
		}
	}
	return nil
}

func (s *rankState) inside(b Buf, off, n int64) bool {
	return off >= 0 && n >= 0 && off <= int64(len(s.bufs[b]))-n
}

func (s *rankState) overlap(a Buf, aOff int64, b Buf, bOff, aLen, bLen int64) bool {
	same := a == b || s.aliased && a != Scratch && b != Scratch
	return same && aOff < bOff+bLen && bOff < aOff+aLen
}
