package outrigger

import (
	"context"
	"encoding/binary"
	"sort"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Comm is a communicator: a group of ranks whose messages meet only each
// other's.
type Comm struct {
	session *Session
	context uint32
	rank    int
	ranks   []uint32       // world ranks
	index   map[uint32]int // world rank -> rank; nil for the world
}

func newWorld(s *Session) *Comm {
	c := &Comm{session: s, rank: s.rank, ranks: make([]uint32, s.ranks)}
	for i := range c.ranks {
		c.ranks[i] = uint32(i)
	}
	return c
}

// Rank is this process's rank.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return len(c.ranks) }

// Session is what the communicator belongs to.
func (c *Comm) Session() *Session { return c.session }

// rankOf translates a world rank.
func (c *Comm) rankOf(world uint32) int {
	if c.index == nil {
		return int(world)
	}
	return c.index[world]
}

// agree finds a number that is free on all members, for a communicator or a
// window.
func (c *Comm) agree(ctx context.Context) (uint32, error) {
	c.session.mu.Lock()
	mine := []uint32{c.session.numbers}
	c.session.mu.Unlock()
	if err := Allreduce(ctx, c, mine, mine, Max); err != nil {
		return 0, err
	}
	c.session.mu.Lock()
	c.session.numbers = mine[0] + 1
	c.session.mu.Unlock()
	return mine[0], nil
}

// Split divides the communicator: members of one color make a new one, ordered
// by key, then rank. A negative color takes part but gets nil.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	number, err := c.agree(ctx)
	if err != nil {
		return nil, err
	}
	mine := []int64{int64(color), int64(key)}
	all := make([]int64, 2*c.Size())
	if err := Allgather(ctx, c, mine, all); err != nil {
		return nil, err
	}
	if color < 0 {
		return nil, nil
	}
	var members []int
	for r := range c.Size() {
		if all[2*r] == int64(color) {
			members = append(members, r)
		}
	}
	sort.SliceStable(members, func(i, j int) bool { return all[2*members[i]+1] < all[2*members[j]+1] })
	n := &Comm{session: c.session, context: number, index: map[uint32]int{}}
	for i, r := range members {
		n.ranks = append(n.ranks, c.ranks[r])
		n.index[c.ranks[r]] = i
		if r == c.rank {
			n.rank = i
		}
	}
	return n, n.announce(ctx)
}

// Dup makes a communicator of the same ranks.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) { return c.Split(ctx, 0, c.rank) }

// announce makes the communicator known to the engine, for collectives.
func (c *Comm) announce(ctx context.Context) error {
	s := c.session
	off, size, err := s.arena.borrow(4 * len(c.ranks))
	if err != nil {
		return s.fail("split", c, AnySource, AnyTag, 4*len(c.ranks), err)
	}
	defer s.arena.giveBack(off, size)
	for i, r := range c.ranks {
		binary.LittleEndian.PutUint32(s.arenaMem[off+4*i:], r)
	}
	d := shm.Descriptor{Op: shm.OpComm, Context: c.context, Class: shm.ClassArena}
	d.SetBody(uint64(off), uint64(4*len(c.ranks)), 0, 0)
	_, err = c.call(ctx, "split", &d)
	return err
}

// call submits d with a request of its own and waits for its end.
func (c *Comm) call(ctx context.Context, what string, d *shm.Descriptor) (op, error) {
	s := c.session
	s.mu.Lock()
	o, id, err := s.begin(what, c, AnySource, AnyTag, 0)
	if err == nil {
		d.Req = id
		s.d = *d
		err = s.push()
	}
	s.mu.Unlock()
	if err != nil {
		return op{}, s.fail(what, c, AnySource, AnyTag, 0, err)
	}
	if err := s.waitDone(ctx, o, o.gen); err != nil {
		s.abandon(o)
		return op{}, s.fail(what, c, AnySource, AnyTag, 0, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	result := *o
	_, err = s.finish(id, o)
	return result, err
}

// abandon lets an operation end by itself whose caller has given up.
func (s *Session) abandon(o *op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !o.detached {
		o.detached = true
		s.ops.detached++
	}
}

// Free ends the communicator on this rank. It is collective, so that no
// message of it is left.
func (c *Comm) Free(ctx context.Context) error {
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d = shm.Descriptor{Op: shm.OpCommFree, Context: c.context}
	if err := s.push(); err != nil {
		return s.fail("free communicator", c, AnySource, AnyTag, 0, err)
	}
	return nil
}
