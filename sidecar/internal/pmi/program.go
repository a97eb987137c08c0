package pmi

import "context"

// A rank may run one MPI program after the other: a script does. Each begins with init and
// ends with finalize, on one connection that they inherit, or on one each. What the programs
// of one number have put is kept apart from the next ones' keys, which have the same names:
// the first rank of the pod that begins a program waits until no other rank of the pod is in
// an earlier one. All ranks have met in that, in its barrier, before one can have ended it.

// programs are those of the ranks of a pod. Guarded by the server's mu.
type programs struct {
	ranks   map[int]*program
	number  int           // of the program whose keys there are
	changed chan struct{} // closed when a program ends; nil: no rank waits
}

// program is the one that a rank runs, or ran last.
type program struct {
	number  int
	running bool
}

// next waits until a rank may begin its next program, and begins it.
func (s *Server) next(ctx context.Context, c *client) error {
	for {
		s.mu.Lock()
		x := &s.programs
		p := x.ranks[c.rank]
		if p == nil {
			p = new(program)
			x.ranks[c.rank] = p
		}
		if p.running || !x.before(p.number+1) {
			if !p.running {
				p.number++
			}
			p.running, c.ended = true, false
			if x.number < p.number {
				x.number = p.number
				s.space.renew()
			}
			s.missed(p.number)
			s.come(c.rank)
			s.mu.Unlock()
			return nil
		}
		if x.changed == nil {
			x.changed = make(chan struct{})
		}
		changed := x.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Between reports whether a rank of a script is between two MPI programs, as far as PMI tells: it
// has ended one, and its process has not ended.
func (s *Server) Between(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.programs.ranks[rank]
	return s.loaded && p != nil && !p.running && !s.gone[rank]
}

// before reports that a rank is in a program before a number.
func (x *programs) before(number int) bool {
	for _, p := range x.ranks {
		if p.running && p.number < number {
			return true
		}
	}
	return false
}

// over notes that a rank's program has ended. s.mu is held.
func (s *Server) over(c *client) {
	c.ended = true
	if p := s.programs.ranks[c.rank]; p != nil {
		p.running = false
	}
	if s.programs.changed != nil {
		close(s.programs.changed)
		s.programs.changed = nil
	}
}
