package pmi

import "context"

// A rank may run several MPI programs in succession, as a script does. Each begins with
// init and ends with finalize, on one inherited connection, or on a connection of its own.
// The keys of the programs of one number are kept apart from those of the next programs,
// which have the same names: the first rank of the pod that begins a program waits until no
// other rank of the pod is in an earlier one. All ranks have met in that earlier program,
// in its barrier, before one can have ended it.

// programs holds the programs of the ranks of a pod. Guarded by Server.mu.
type programs struct {
	ranks   map[int]*program
	number  int           // number of the program whose keys the space holds
	changed chan struct{} // closed when a program ends; nil: no rank waits
}

// program is the program that a rank runs, or ran last.
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
			s.enterMPI(c.rank)
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

// Between reports whether a rank of a script is between two MPI programs, as far as PMI
// shows: it has ended one, and its process has not ended.
func (s *Server) Between(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.programs.ranks[rank]
	return s.loaded && p != nil && !p.running && !s.gone[rank]
}

// before reports whether a rank is in a program before the given one.
func (x *programs) before(number int) bool {
	for _, p := range x.ranks {
		if p.running && p.number < number {
			return true
		}
	}
	return false
}

// endProgram notes that a rank's program has ended. s.mu is held.
func (s *Server) endProgram(c *client) {
	c.ended = true
	if p := s.programs.ranks[c.rank]; p != nil {
		p.running = false
	}
	if s.programs.changed != nil {
		close(s.programs.changed)
		s.programs.changed = nil
	}
}
