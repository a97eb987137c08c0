// Package launch runs the ranks of one pod: it starts a process for each, sends
// its output on with the rank in front, passes signals on, and ends the others
// when one has failed. Nothing that a rank started outlives Run.
package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

// Event is one line of the status stream, JSON.
type Event struct {
	Event  string    `json:"event"` // started, exited or failed
	Rank   int       `json:"rank"`
	PID    int       `json:"pid,omitempty"`
	Code   int       `json:"code"`             // exit code; 128+signal for a signal, as a shell says it
	Signal string    `json:"signal,omitempty"` // name of the signal that ended it
	Reason string    `json:"reason,omitempty"` // why it could not be started
	Judged bool      `json:"judged,omitempty"` // it ended well, and Reason is what is wrong with it all the same
	Hint   string    `json:"hint,omitempty"`   // what may have caused the signal
	Told   bool      `json:"told,omitempty"`   // it ended because it was told to
	Clue   string    `json:"clue,omitempty"`   // why, as it has printed
	Aborts bool      `json:"aborts,omitempty"` // it has asked for the end of the job, and for that code
	Time   time.Time `json:"time"`
}

// Text says how a rank ended.
func (e *Event) Text() string {
	switch {
	case e.Judged:
		return "ended well, but " + e.Reason
	case e.Told && e.Reason != "":
		return e.Reason
	case e.Reason != "":
		return "could not be started: " + e.Reason
	case e.Signal != "" && e.Hint != "":
		return "was killed by " + e.Signal + ": " + e.Hint
	case e.Signal != "":
		return "was killed by " + e.Signal
	}
	text := fmt.Sprintf("exited with code %d", e.Code)
	if e.Aborts {
		text = fmt.Sprintf("called abort with code %d", e.Code)
	}
	if e.Clue != "" {
		text += ": " + e.Clue
	}
	return text
}

// Config of a pod's ranks.
type Config struct {
	Socket      string
	First, Last int
	Program     []string
	Env         []string         // on top of the process's own
	Prefix      bool             // put "[rank] " before each line
	Stdin       *os.File         // of rank 0 of the world, which inherits it; nil: ranks read nothing
	Out, Err    io.Writer        // shared by all ranks, written in whole lines; the end does not wait for their readers
	Status      io.Writer        // nil: no status lines
	Pod         int              // number of the pod, for Log
	Log         *podlife.Log     // nil: no termination message
	Unable      error            // why no rank of this pod can be started; nil: nothing is known
	Grace       time.Duration    // between SIGTERM and SIGKILL when a rank has failed; default 2 s
	Drain       time.Duration    // the same when this process is told to end; default Grace
	Signals     <-chan os.Signal // passed on to every rank; SIGKILL: the ranks that are left are killed

	// Dress gives a rank more than Env: variables, and files that it inherits as
	// descriptor 3 and those that follow. Its caller closes the files when the
	// rank has started. nil: nothing.
	Dress func(ctx context.Context, rank int) (env []string, files []*os.File, err error)
	// Judge says what is wrong with a rank that has exited with code 0. nil: nothing. It
	// may wait for other ranks, until ctx ends: when one has failed, or this process is told
	// to end.
	Judge func(ctx context.Context, rank int) error
	// Ended is called for each rank that has exited with code 0, before its status line is
	// written. nil: nothing. It may wait until ctx ends, as Judge may.
	Ended func(ctx context.Context, rank int)
	// Failed is told of the first rank that has ended badly, or cannot be started, before
	// others are ended for it. nil: nobody is.
	Failed func(rank, code int)
	// JobFailed reports whether the job has failed, as far as the sidecar knows: then that is
	// why this process is told to end, and the ranks have Grace and not Drain. The last words
	// of a pod whose ranks have ended well say it, too. An error: the sidecar gave no answer.
	// nil: it cannot be asked.
	JobFailed func(ctx context.Context) (bool, error)
	// Aborts tells of ranks that have asked for the end of the job, with its exit code, and
	// leave their own to somebody else; and of lost ones, because of which the job has failed,
	// and whose processes may live. It returns when ctx ends. nil: nobody tells.
	Aborts func(ctx context.Context, told func(rank, code int, lost bool))
	// Clue makes what looks in a rank's standard error for the reason of its end. nil: nothing.
	Clue func() Clue
	// Texts is called once, before ranks start, with a function that prints a text as a rank's
	// standard error: what an MPI prints by process management comes to the launcher. nil: no
	// text comes.
	Texts func(say func(rank int, text string))
	// Tidy is called when all ranks have ended, and all that they started. nil: nothing.
	Tidy func() error

	killGroup func(int) // of tests
	awaited   func()    // of tests: a rank has ended, and nobody knows yet
}

// Exit codes of programs that cannot be run, as shells use them.
const (
	exitUnable        = 1 // what they need is missing
	exitNotFound      = 127
	exitNotExecutable = 126
)

// CannotRun is the exit code for a program that exec.LookPath does not find or
// does not like.
func CannotRun(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitNotExecutable
}

// wordsApart adds what is meant to the failure to find a program that is a whole line.
func wordsApart(program string, err error) error {
	words := strings.Fields(program)
	if len(words) < 2 || CannotRun(err) != exitNotFound {
		return err
	}
	return fmt.Errorf("%w; its name has spaces in it, and no shell takes it apart: a command is a list of words, as in [%s]", err, strings.Join(words, ", "))
}

// pod is a running set of ranks.
type pod struct {
	cfg     Config
	copies  sync.WaitGroup // of output
	stop    chan struct{}  // closed by the first failure
	hasten  func()         // ends what waits for other ranks
	out     *outlet.Writer // Out and Err, which may be one
	err     *outlet.Writer
	silent  atomic.Bool // nobody is left who could print
	reports sync.Mutex  // held for a status line
	tail    tail        // of what the ranks print
	texts   texts       // that ranks print by process management

	mu     sync.Mutex // guards what follows
	procs  map[int]*running
	clues  map[int]*clued
	pipes  []*os.File     // that output is read from
	ending syscall.Signal // what ranks get that start too late; 0: the pod is not ending
	told   bool           // to end, from outside
	// interrupted says that a rank had not ended when the pod was told to.
	interrupted bool
	first       *Event // first failure
	failures    []podlife.Failure
	outcome     podlife.Outcome // of ranks that have all ended well
}

func newPod(cfg Config) *pod {
	return &pod{cfg: cfg, procs: map[int]*running{}, clues: map[int]*clued{}, stop: make(chan struct{}), hasten: func() {}, out: outlet.Of(cfg.Out), err: outlet.Of(cfg.Err)}
}

// Run runs the ranks to their end and returns the first failure, or nil. It
// makes this process the parent of what ranks leave behind, so nothing else in
// it may start processes meanwhile.
func Run(ctx context.Context, cfg Config) *Event {
	if cfg.Grace == 0 {
		cfg.Grace = 2 * time.Second
	}
	if cfg.Drain == 0 {
		cfg.Drain = cfg.Grace
	}
	if cfg.killGroup == nil {
		cfg.killGroup = killGroup
	}
	p := newPod(cfg)
	defer context.AfterFunc(ctx, p.hurry)()
	if cfg.Unable != nil {
		p.cannot(cfg.First, exitUnable, cfg.Unable)
		return p.first
	}
	path, err := exec.LookPath(cfg.Program[0])
	if err != nil {
		p.cannot(cfg.First, CannotRun(err), Advise(wordsApart(cfg.Program[0], err)))
		return p.first
	}
	Adopt()
	if cfg.Texts != nil {
		cfg.Texts(p.say)
	}
	var wg, watch sync.WaitGroup
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx)) // also while the pod ends
	defer unwatch()
	if cfg.Aborts != nil {
		watch.Go(func() { cfg.Aborts(watched, p.abort) })
	}
	judging, hasten := context.WithCancel(ctx)
	p.hasten = hasten
	defer hasten()
	for r := cfg.First; r <= cfg.Last; r++ {
		wg.Go(func() { p.run(ctx, judging, r, path) })
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() { defer close(ended); p.supervise(ctx, done) }()
	wg.Wait()
	unwatch()
	watch.Wait()
	close(done)
	<-ended
	KillOrphans()
	if cfg.Tidy != nil {
		if err := cfg.Tidy(); err != nil {
			_, _ = fmt.Fprintln(cfg.Err, "outrigger-launch: tidying up:", err) // the ranks' result stands
		}
	}
	p.cutShort()
	p.conclude(ctx)
	p.leaveWord()
	p.finishOutput()
	if p.first != nil {
		p.leaveWord() // with the last lines
	}
	return p.first
}

// reapPause is how often the remains of adopted processes are taken away.
const reapPause = time.Second

// supervise passes signals on and ends everything on failure or cancellation:
// first politely, then not. What comes first decides how long the ranks have: ranks that
// write a checkpoint because this process is told to end may exit with any code, and do not
// shorten the time of the others.
func (p *pod) supervise(ctx context.Context, done <-chan struct{}) {
	stop, cancelled := p.stop, ctx.Done()
	failed := make(chan struct{})
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	defer watch.Wait()
	defer unwatch()
	reap := time.NewTicker(reapPause)
	defer reap.Stop()
	ending := false
	var kill <-chan time.Time
	end := func(grace time.Duration) {
		if !ending {
			ending = true
			p.end(unix.SIGTERM)
			kill = time.After(grace)
		}
	}
	for {
		select {
		case <-done:
			return
		case <-reap.C:
			p.reapOrphans()
		case s := <-p.cfg.Signals:
			p.passOn(s)
		case <-stop:
			stop = nil
			end(p.cfg.Grace)
		case <-cancelled:
			cancelled = nil
			p.tell()
			if !ending && p.cfg.JobFailed != nil {
				watch.Go(func() {
					// A sidecar that has ended knows of no failure.
					if is, err := p.cfg.JobFailed(watched); is && err == nil {
						close(failed)
					}
				})
			}
			end(p.cfg.Drain)
		case <-failed:
			failed = nil
			if kill != nil {
				kill = time.After(min(p.cfg.Grace, p.cfg.Drain))
			}
		case <-kill:
			p.end(unix.SIGKILL)
			kill = nil
		}
	}
}

// exitTerminated is the exit code of a pod that was told to end, as a shell says it.
const exitTerminated = 128 + int(unix.SIGTERM)

// cutShort makes the end of a pod that was told to end, and whose ranks have then ended
// with 0, no good one: a rank that writes a checkpoint when it is told to end has not done
// all its work. All ranks have ended.
func (p *pod) cutShort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first != nil || !p.interrupted {
		return
	}
	p.first = &Event{Event: "failed", Rank: p.cfg.First, Code: exitTerminated, Told: true, Reason: "ended with code 0 because of SIGTERM, before its time", Time: time.Now()}
	p.remember(p.first)
}

// tell notes that the pod was told to end, which the ranks are that have not ended yet.
func (p *pod) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteEnded()
	p.told = true
	for _, proc := range p.procs {
		p.interrupted = p.interrupted || proc.orders == nil
	}
}

// end sends s to all ranks, and to those that are starting when they have.
func (p *pod) end(s syscall.Signal) {
	p.mu.Lock()
	p.noteEnded()
	p.ending = s
	p.mu.Unlock()
	p.signal(s)
}

// passOn gives the ranks a signal that this process has received.
func (p *pod) passOn(s os.Signal) {
	switch sig, ok := s.(syscall.Signal); {
	case !ok:
	case sig == unix.SIGKILL:
		p.end(sig)
	case sig == unix.SIGUSR1 || sig == unix.SIGUSR2:
		p.notify(sig)
	case !p.signal(sig) && ends(sig):
		p.hasten()
	}
}

// notify sends s to the process of each rank, once, and not to those that it has started:
// these need not expect the signal, which ends a process that does not, and what is an
// mpirun passes it on itself.
func (p *pod) notify(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.procs {
		_ = unix.Kill(proc.Pid, s) // it may just have ended
	}
}

// signal reaches the whole process group of every rank; false: none is left.
func (p *pod) signal(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.procs {
		_ = unix.Kill(-proc.Pid, s) // it may just have ended
	}
	return len(p.procs) > 0
}

// ends reports whether a signal ends a program that does nothing about it, as who sends it
// to the ranks expects, and not what a program makes of it.
func ends(s syscall.Signal) bool { return s == unix.SIGINT || s == unix.SIGQUIT || s == unix.SIGHUP }

// abort ends a rank that has asked for the end of the job, which may wait for that, or a lost
// one: first politely, then not. The end of the others follows from its own.
func (p *pod) abort(rank, code int, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	proc := p.procs[rank]
	if proc == nil || proc.aborts != 0 || proc.lost {
		return // it has ended, or is another launcher's
	}
	if proc.lost = lost; !lost {
		proc.aborts = code
	}
	_ = unix.Kill(-proc.Pid, unix.SIGTERM) // it may just have ended
	time.AfterFunc(p.cfg.Grace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.procs[rank] == proc { // else its number may be another's
			_ = unix.Kill(-proc.Pid, unix.SIGKILL) // as above
		}
	})
}

// announce tells of the failure of a rank, if that is why the pod ends.
func (p *pod) announce(e *Event) {
	p.mu.Lock()
	first := p.first == nil && p.ending == 0
	p.mu.Unlock()
	if first && !e.Told && !e.Aborts && p.cfg.Failed != nil {
		p.cfg.Failed(e.Rank, e.Code)
	}
}

// cannot is the failure of a rank that cannot be started. Its sidecar is told, or those of
// other pods would hear only that it leaves the job, and blame it, or their ranks, for that.
func (p *pod) cannot(rank, code int, cause error) {
	e := &Event{Event: "failed", Rank: rank, Code: code, Reason: cause.Error(), Time: time.Now()}
	p.announce(e)
	p.fail(e)
}

// fail reports a failure, and starts the end of the pod. Ranks that fail at
// almost the same time may be heard of in any order: the earliest counts.
func (p *pod) fail(e *Event) {
	p.mu.Lock()
	if p.first == nil {
		close(p.stop)
	}
	if p.first == nil || e.Time.Before(p.first.Time) {
		p.first = e
	}
	p.remember(e)
	p.mu.Unlock()
	p.hasten()
	p.hurry()
	p.leaveWord() // already now: this process may be killed too
	p.report(e)
}

// hurry lets nothing wait any more for those who read the output.
func (p *pod) hurry() {
	p.out.Hurry()
	p.err.Hurry()
}

func (p *pod) report(e *Event) {
	if p.cfg.Status == nil {
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		return // an Event always has a form
	}
	p.reports.Lock()
	defer p.reports.Unlock()
	_, _ = p.cfg.Status.Write(append(b, '\n')) // a reader that has gone asks for nothing
}
