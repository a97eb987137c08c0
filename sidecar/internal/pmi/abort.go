package pmi

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// A rank that aborts asks for the end of the job, and may leave its own to others: Intel's
// library waits for it, and MPICH's goes on. A rank that is lost may live on: its process has
// closed its session's socket, or has become another program. The launchers of the pod hear of
// both, and end the rank:
//
//	cmd=outrigger_aborts lost=1    of a launcher, on a connection of its own
//	cmd=aborts rank=R code=C    for each rank of the pod that aborts, once, or has
//	cmd=aborts rank=R code=C lost=1    for each rank of the pod that is lost
//
// A launcher of an earlier release does not say lost=1, and hears of aborts alone.

// aborts are those who have, and who hears of it. Guarded by the server's mu.
type aborts struct {
	lines    []string
	watchers []watcher
}

// watcher is a launcher.
type watcher struct {
	*client
	lost bool // it hears of lost ranks
}

// hears reports that a line is for w.
func (w watcher) hears(line string) bool { return w.lost || !strings.HasSuffix(line, lostWord) }

const lostWord = " lost=1"

var errWatchers = errors.New("more launchers than ranks want to hear of aborts")

func (a *aborts) leave(c *client) {
	a.watchers = slices.DeleteFunc(a.watchers, func(w watcher) bool { return w.client == c })
}

// watch makes c one of the launchers that hear of aborts. It may be of any user that the pod admits:
// launchers of several users may have started the pod's ranks.
func (s *Server) watch(c *client, r request) error {
	if err := c.enter(); err != nil {
		return err
	}
	w := watcher{c, r.fields["lost"] == "1"}
	s.mu.Lock()
	if len(s.aborts.watchers) >= s.cfg.Count || slices.ContainsFunc(s.aborts.watchers, func(w watcher) bool { return w.client == c }) {
		s.mu.Unlock()
		return errWatchers
	}
	s.aborts.watchers = append(s.aborts.watchers, w)
	lines := slices.Clone(s.aborts.lines)
	s.mu.Unlock()
	for _, line := range lines {
		if !w.hears(line) {
			continue
		}
		if err := c.say("%s", line); err != nil {
			return err
		}
	}
	return nil
}

// abort ends the job as the rank asks for. Its first word counts.
func (s *Server) abort(c *client, r request) {
	if c.aborted {
		return
	}
	c.aborted = true
	s.aborted(c.rank, r)
}

// abortOf hears of the launcher that a rank aborts which asked another server for it,
// PMIx's: cmd=outrigger_abort rank=R exitcode=C message=TEXT.
func (s *Server) abortOf(c *client, r request) error {
	rank, err := s.rankOf(r.fields["rank"])
	if err != nil {
		return err
	}
	s.aborted(rank, r)
	return c.say("cmd=outrigger_aborted rc=0")
}

func (s *Server) aborted(rank int, r request) {
	s.cfg.Log.Info("rank aborts", "rank", rank, "code", r.fields["exitcode"], "text", r.fields["message"])
	n, err := strconv.ParseInt(r.fields["exitcode"], 10, 64)
	if err != nil {
		n = 1
	}
	code := max(uint32(n&0xff), 1) // as a process can have it
	s.cfg.Abort(rank, code)
	s.tellAbort(rank, code)
}

// Lost has the launchers of the pod end a rank because of which the job has failed, if its
// process lives.
func (s *Server) Lost(rank int) {
	s.tellLaunchers(fmt.Sprintf("cmd=aborts rank=%d code=1%s", rank, lostWord))
}

// printable is a text of a process as it may stand in logs, statuses and terminals.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
}

// refusedMax bounds the reason of a refusal, in bytes.
const refusedMax = 512

// refused hears of a process that is refused in MPI_Init (clientlib/c/check), whose mpirun may
// not end for that: cmd=outrigger_refused rank=R message=TEXT. The rank is of any pod: an mpirun
// may have placed it otherwise.
func (s *Server) refused(c *client, r request) error {
	rank, err := strconv.Atoi(r.fields["rank"])
	text := podlife.Cut(printable(r.fields["message"]), refusedMax, podlife.TextCut)
	if err != nil || rank < 0 || rank >= s.ranks || text == "" {
		return fmt.Errorf("%w: refused rank %q of %d, reason %q", errLine, r.fields["rank"], s.ranks, text)
	}
	s.cfg.Log.Info("rank is refused", "rank", rank, "cause", text)
	if s.cfg.Refused != nil {
		s.cfg.Refused(rank, text)
	}
	s.tellAbort(rank, 1)
	return c.say("cmd=outrigger_refused rc=0")
}

// tellAbort has the launchers of the pod end a rank. Preconditions: s.mu is not held.
func (s *Server) tellAbort(rank int, code uint32) {
	s.tellLaunchers(fmt.Sprintf("cmd=aborts rank=%d code=%d", rank, code))
}

// tellLaunchers says a line to the launchers of the pod, and to those that ask later.
// Preconditions: s.mu is not held.
func (s *Server) tellLaunchers(line string) {
	s.mu.Lock()
	if len(s.aborts.lines) < s.cfg.Count { // else a rank has come again and again
		s.aborts.lines = append(s.aborts.lines, line)
	}
	watchers := slices.Clone(s.aborts.watchers)
	s.mu.Unlock()
	for _, w := range watchers {
		if w.hears(line) {
			_ = w.say("%s", line) // a launcher that does not read has gone, or ends its ranks for another reason
		}
	}
}
