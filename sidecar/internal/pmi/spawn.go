package pmi

import "strings"

// MPI_Comm_spawn requests more processes, for each program by lines of its own:
//
//	mcmd=spawn
//	totspawns=T       programs in all
//	spawnssofar=N     with this one
//	KEY=VALUE, arguments and other fields
//	endcmd
//
// and waits for one answer after the last program. A job has a fixed number of ranks: the
// request is refused, which the library reports as an error of the call, and the log has
// the reason.

const noSpawn = "a job of Outrigger has a fixed number of ranks: MPI_Comm_spawn is not offered"

// spawn handles a line that is part of a spawn request, and reports whether it is.
func (s *Server) spawn(c *client, line string) (bool, error) {
	switch {
	case line == "mcmd=spawn" && c.rank >= 0:
		c.spawning = map[string]string{}
	case c.spawning == nil:
		return false, nil
	case line == "endcmd":
		last := c.spawning["spawnssofar"] == c.spawning["totspawns"]
		c.spawning = nil
		if last {
			return true, s.refuseSpawn(c)
		}
	default:
		if key, value, _ := strings.Cut(line, "="); key == "totspawns" || key == "spawnssofar" {
			c.spawning[key] = value
		}
	}
	return true, nil
}

func (s *Server) refuseSpawn(c *client) error {
	s.complaints.Do(func() { s.cfg.Log.Warn(noSpawn, "rank", c.rank) })
	return c.send("cmd=spawn_result rc=-1 msg=%s", fold(noSpawn))
}
