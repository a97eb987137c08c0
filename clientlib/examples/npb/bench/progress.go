package bench

import outrigger "github.com/outrigger-hpc/outrigger/clientlib"

// Progress is called on rank 0 of the communicator after step done of total,
// in the timed part of a run; note is a short text such as "zeta = 8.59", and
// may be empty. A kernel accepts a nil Progress.
type Progress func(done, total int, note string)

// OnRoot returns p on rank 0 and nil elsewhere, so that the other ranks do not even
// format a note.
func (p Progress) OnRoot(c *outrigger.Comm) Progress {
	if c.Rank() != 0 {
		return nil
	}
	return p
}
