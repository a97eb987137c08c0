package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Memory that an application has registered with a device itself, and lends for its messages
// (L§5.2). The engine cannot access the bytes: a link reads from it and into it remotely, or the
// message is staged.

// lent is memory that an application has lent. After the application has taken it back, its
// record stays until no message uses it.
type lent struct {
	number uint32
	len    uint64
	uses   int    // sends and receives that use the memory
	ends   uint32 // request that completes when the lending ends, plus 1; 0: none
}

// lentRange is a part of lent memory; of is nil in the zero value.
type lentRange struct {
	of *lent
	at link.Ref
}

// Lend permits a session to lend memory, which l knows as a region.
func (rm *Room) Lend(id ranks.SessionID, l Lender, region link.Region) {
	rm.sessions[id].lender, rm.sessions[id].lends = l, region
}

// submitExpose takes memory that the application lends.
func (rm *Room) submitExpose(s *session, d *shm.Descriptor) error {
	number, n := d.Aux(), d.Len()
	switch {
	case number >= shm.MaxExposures || n == 0 || n >= 1<<shm.ExposureShift:
		return fmt.Errorf("exposure %d of %d bytes", number, n)
	case s.lent[uint32(number)] != nil:
		return fmt.Errorf("exposure %d is there already", number)
	}
	if err := s.Claim(d.Req, ranks.RequestPlain, 0); err != nil {
		return err
	}
	if s.lender == nil { // its link has taken no context
		rm.ranks.Finish(s.ID(), d.Req, shm.StatusUnsupported)
		return nil
	}
	m := link.Lent{Addr: d.Addr(), Len: n, Lkey: uint32(d.Aux2()), Rkey: uint32(d.Aux2() >> 32)}
	if err := s.lender.Lend(s.lends, uint32(number), m); err != nil {
		rm.ranks.Finish(s.ID(), d.Req, shm.StatusUnsupported) // its device is gone
		return nil
	}
	if s.lent == nil {
		s.lent = map[uint32]*lent{}
	}
	s.lent[uint32(number)] = &lent{number: uint32(number), len: n}
	rm.ranks.Finish(s.ID(), d.Req, shm.StatusOK)
	return nil
}

// submitUnexpose gives lent memory back when no message uses it any more.
func (rm *Room) submitUnexpose(s *session, d *shm.Descriptor) error {
	m := s.lent[uint32(min(d.Aux(), shm.MaxExposures))]
	if m == nil || m.ends != 0 {
		return fmt.Errorf("exposure %d is not there", d.Aux())
	}
	if err := s.Claim(d.Req, ranks.RequestPlain, 0); err != nil {
		return err
	}
	m.ends = d.Req + 1
	m.uses++
	rm.endLent(s.ID(), m)
	return nil
}

// lentMemory returns the range that a descriptor of class exposed names.
func (s *session) lentMemory(addr, length uint64) (lentRange, error) {
	number, off := addr>>shm.ExposureShift, addr&(1<<shm.ExposureShift-1)
	m := s.lent[uint32(number)]
	if m == nil || m.ends != 0 {
		return lentRange{}, fmt.Errorf("exposure %d is not there", number)
	}
	if length == 0 || length > m.len || off > m.len-length {
		return lentRange{}, fmt.Errorf("range of %d bytes at %d is outside the %d bytes of exposure %d", length, off, m.len, number)
	}
	return lentRange{m, link.Ref{Region: s.lends, Off: number<<link.LentShift | off, Len: length}}, nil
}

// endLent ends a use of lent memory. The request that used it must have been completed before:
// the application may free the memory when it receives the completion that the memory is lent
// no more.
func (x *common) endLent(id ranks.SessionID, m *lent) {
	if m.uses--; m.uses > 0 || m.ends == 0 {
		return
	}
	s := x.sessions[id]
	if s == nil || s.Left() {
		return // all of it ends with its session
	}
	delete(s.lent, m.number)
	s.lender.Reclaim(s.lends, m.number)
	x.ranks.Finish(id, m.ends-1, shm.StatusOK)
}
