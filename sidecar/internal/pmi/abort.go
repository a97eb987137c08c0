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

// A rank that aborts requests the end of the job, and may leave its own end to others:
// Intel's library waits to be killed, and MPICH's goes on. A rank that is lost may live on:
// its process has closed its session's socket, or has replaced itself by another program.
// The server notifies the launchers of the pod of both, and they kill the rank:
//
//	cmd=outrigger_aborts lost=1    from a launcher, on a connection of its own
//	cmd=aborts rank=R code=C    for each rank of the pod that aborts, once, or has aborted
//	cmd=aborts rank=R code=C lost=1    for each rank of the pod that is lost
//
// A launcher of an earlier release does not send lost=1, and is notified of aborts only.

// aborts holds the notifications so far and the launchers that receive them. Guarded by
// Server.mu.
type aborts struct {
	lines    []string
	watchers []watcher
}

// watcher is a launcher that is notified of aborts.
type watcher struct {
	*client
	lost bool // the launcher is notified of lost ranks, too
}

// wants reports whether line is sent to w.
func (w watcher) wants(line string) bool { return w.lost || !strings.HasSuffix(line, lostWord) }

const lostWord = " lost=1"

var errWatchers = errors.New("more launchers than ranks want to hear of aborts")

func (a *aborts) leave(c *client) {
	a.watchers = slices.DeleteFunc(a.watchers, func(w watcher) bool { return w.client == c })
}

// watch adds c to the launchers that are notified of aborts. It may belong to any user that
// the pod admits: launchers of several users may have started the pod's ranks.
func (s *Server) watch(c *client, r request) error {
	if err := c.admit(); err != nil {
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
		if !w.wants(line) {
			continue
		}
		if err := c.send("%s", line); err != nil {
			return err
		}
	}
	return nil
}

// abort ends the job for a rank. Only its first request counts.
func (s *Server) abort(c *client, r request) {
	if c.aborted {
		return
	}
	c.aborted = true
	s.aborted(c.rank, r)
}

// abortOf serves a launcher's report that a rank has requested an abort of another server,
// PMIx's: cmd=outrigger_abort rank=R exitcode=C message=TEXT.
func (s *Server) abortOf(c *client, r request) error {
	rank, err := s.rankOf(r.fields["rank"])
	if err != nil {
		return err
	}
	s.aborted(rank, r)
	return c.send("cmd=outrigger_aborted rc=0")
}

func (s *Server) aborted(rank int, r request) {
	s.cfg.Log.Info("rank aborts", "rank", rank, "code", r.fields["exitcode"], "text", r.fields["message"])
	n, err := strconv.ParseInt(r.fields["exitcode"], 10, 64)
	if err != nil {
		n = 1
	}
	code := max(uint32(n&0xff), 1) // an exit code has 8 bits, and 0 would mean success
	s.cfg.Abort(rank, code)
	s.notifyAbort(rank, code)
}

// Lost makes the launchers of the pod kill a rank because of which the job has failed, if
// its process lives.
func (s *Server) Lost(rank int) {
	s.notifyLaunchers(fmt.Sprintf("cmd=aborts rank=%d code=1%s", rank, lostWord))
}

// printable returns a text of a process with blanks for the characters that may not appear
// in logs, statuses and terminals.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
}

// refusedMax bounds the reason of a refusal, in bytes: it becomes the reason of the job's failure.
const refusedMax = 512

// refused serves the report of a process that its MPI library's check refuses in MPI_Init
// (clientlib/c/check), and whose mpirun may not end because of that: cmd=outrigger_refused
// rank=R message=TEXT. The rank may belong to any pod: an mpirun may have placed the
// process in this one.
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
	s.notifyAbort(rank, 1)
	return c.send("cmd=outrigger_refused rc=0")
}

// notifyAbort makes the launchers of the pod kill a rank. Preconditions: s.mu is not held.
func (s *Server) notifyAbort(rank int, code uint32) {
	s.notifyLaunchers(fmt.Sprintf("cmd=aborts rank=%d code=%d", rank, code))
}

// notifyLaunchers sends a line to the launchers of the pod, and to those that ask later.
// Preconditions: s.mu is not held.
func (s *Server) notifyLaunchers(line string) {
	s.mu.Lock()
	if len(s.aborts.lines) < s.cfg.Count { // a rank that reconnects again and again must not fill memory
		s.aborts.lines = append(s.aborts.lines, line)
	}
	watchers := slices.Clone(s.aborts.watchers)
	s.mu.Unlock()
	for _, w := range watchers {
		if w.wants(line) {
			_ = w.send("%s", line) // a launcher that does not read has gone, or ends its ranks for another reason
		}
	}
}
