package outrigger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Comm is a communicator: a group of ranks. Its messages match only its own receives.
type Comm struct {
	*group
	session *Session
	context uint32
	rank    int
	freed   bool // guarded by the session's mutex
}

func newWorld(s *Session) *Comm {
	return &Comm{session: s, rank: s.rank, group: &group{size: s.ranks}}
}

// Rank returns the rank of this process.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// Session returns the session to which the communicator belongs.
func (c *Comm) Session() *Session { return c.session }

// agree returns a number for a communicator or a window that is free on all members: the largest
// one that a member proposes. If an agreement of another communicator has taken it on a member
// meanwhile, the members try again.
func (c *Comm) agree(ctx context.Context) (uint32, error) {
	for {
		n := []uint32{c.session.nextNumber()}
		if err := Allreduce(ctx, c, n, n, Max); err != nil {
			return 0, err
		}
		ok := []uint8{0}
		if c.session.claim(n[0]) {
			ok[0] = 1
		}
		if err := Allreduce(ctx, c, ok, ok, LAnd); err != nil {
			return 0, err
		}
		if ok[0] != 0 {
			return n[0], nil
		}
	}
}

func (s *Session) nextNumber() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbers
}

// claim reserves number n if it is free on this rank.
func (s *Session) claim(n uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < s.numbers {
		return false
	}
	s.numbers = n + 1
	return true
}

// Split divides the communicator: members with the same color form a new one, ordered by key, then
// rank. Members with a negative color take part and get nil.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	number, err := c.agree(ctx)
	if err != nil {
		return nil, c.during("split", err)
	}
	mine := []int64{int64(color), int64(key)}
	all := make([]int64, 2*c.Size())
	if err := Allgather(ctx, c, mine, all); err != nil {
		return nil, c.during("split", err)
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
	n := &Comm{session: c.session, context: number}
	ranks := make([]uint32, len(members))
	for i, r := range members {
		ranks[i] = c.world(r)
		if r == c.rank {
			n.rank = i
		}
	}
	n.group = newGroup(ranks)
	list := make([]byte, 0, 4*len(ranks))
	for _, r := range ranks {
		list = binary.LittleEndian.AppendUint32(list, r)
	}
	return n, n.announce(ctx, "split", shm.Descriptor{}, list)
}

// Dup returns a new communicator of the same ranks.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	if !c.session.sharesGroups {
		n, err := c.Split(ctx, 0, c.rank)
		return n, c.during("dup", err)
	}
	number, err := c.agree(ctx)
	if err != nil {
		return nil, c.during("dup", err)
	}
	n := &Comm{session: c.session, context: number, rank: c.rank, group: c.group}
	var d shm.Descriptor
	d.SetBody(0, 0, uint64(c.context), 0)
	return n, n.announce(ctx, "dup", d, nil)
}

// during adds the call of the program to the error of a collective on which that call is built: the
// program may not have called the collective itself.
func (c *Comm) during(what string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return c.session.fail(what, c, AnySource, AnyTag, 0, err)
	}
	named := *e
	inner := e.Op
	if _, its, nested := strings.Cut(inner, itsOwn); nested { // Cart is built on Split
		inner = strings.TrimSuffix(its, ")")
	}
	if inner != what {
		named.Op = what + itsOwn + inner + ")"
	}
	return &named
}

const itsOwn = " (its "

// announce creates the communicator in the engine, for collectives. d names a communicator with the
// same ranks, or list has the ranks.
func (c *Comm) announce(ctx context.Context, what string, d shm.Descriptor, list []byte) error {
	d.Op, d.Context = shm.OpComm, c.context
	_, err := c.call(ctx, what, AnySource, d, list, nil)
	return err
}

// call submits d with a request of its own and waits for its completion. operand, if any, is copied
// into the arena before, and result, if any, from the arena afterwards.
func (c *Comm) call(ctx context.Context, what string, peer int, d shm.Descriptor, operand, result []byte) (outcome, error) {
	r, err := c.startCall(ctx, what, peer, &d, operand, result)
	if err != nil {
		return outcome{}, err
	}
	return r.awaitWhole(ctx)
}

func (c *Comm) startCall(ctx context.Context, what string, peer int, d *shm.Descriptor, operand, result []byte) (Request, error) {
	s := c.session
	if err := s.enterCall(ctx); err != nil {
		return Request{}, s.fail(what, c, peer, AnyTag, len(operand), err)
	}
	defer s.mu.Unlock()
	o, r, err := s.begin(what, c, peer, AnyTag, len(operand))
	if err == nil {
		if d.Class == shm.ClassArena {
			o.lent, o.uses[0] = true, span{int(d.Addr()), int(d.Len())}
		}
		if d.Op != shm.OpComm {
			o.window = d.Context
		}
		if err = s.lend(o, d, operand, result); err != nil {
			s.drop(r.id, o)
		} else {
			r, err = s.submitOp(r, o, d)
		}
	}
	if err != nil {
		return Request{}, s.fail(what, c, peer, AnyTag, len(operand), err)
	}
	return r, nil
}

// lend copies operand into a loan of arena memory and puts its offset into d.
func (s *Session) lend(o *op, d *shm.Descriptor, operand, result []byte) error {
	if len(operand) == 0 {
		return nil
	}
	off, size, err := s.arena.borrow(len(operand))
	if err != nil {
		return err
	}
	o.loan = loan{off: off, size: size, out: result, outOff: off}
	copy(s.arenaMem[off:], operand)
	d.Class = shm.ClassArena
	d.SetBody(uint64(off), uint64(len(operand)), d.Aux(), d.Aux2())
	return nil
}

// Free frees the communicator on this rank. It is collective, so that no message of the communicator
// is in flight. The world cannot be freed.
func (c *Comm) Free(ctx context.Context) error {
	s := c.session
	if c == s.world {
		return s.fail("free communicator", c, AnySource, AnyTag, 0, fmt.Errorf("%w: the world stays until Close", ErrInvalid))
	}
	if err := c.Barrier(ctx); err != nil {
		return c.during("free communicator", err)
	}
	if err := s.enterCall(context.WithoutCancel(ctx)); err != nil { // the other ranks free it
		return s.fail("free communicator", c, AnySource, AnyTag, 0, err)
	}
	defer s.mu.Unlock()
	if err := s.push(&shm.Descriptor{Op: shm.OpCommFree, Context: c.context}); err != nil {
		return s.fail("free communicator", c, AnySource, AnyTag, 0, err)
	}
	c.freed = true
	return nil
}
