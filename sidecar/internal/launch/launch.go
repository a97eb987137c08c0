// Package launch runs the ranks of one pod: it starts a process for each rank, forwards its
// output with the rank in front, forwards signals, and ends the other ranks when one has
// failed. No process that a rank has started outlives Run.
//
// A rank is started (pod.start), runs until it exits or is killed (pod.run), is reaped
// after its process group was killed (pod.reap), and is judged if it exited with code
// 0. The first failure, or the end of the context, sends SIGTERM to all ranks, and SIGKILL
// after a grace period (pod.supervise).
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
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

// Event is one line of the status stream, in JSON.
type Event struct {
	Event  string    `json:"event"` // started, exited or failed
	Rank   int       `json:"rank"`
	PID    int       `json:"pid,omitempty"`
	Code   int       `json:"code"`             // exit code; 128+N for signal N, as in a shell
	Signal string    `json:"signal,omitempty"` // name of the signal that ended it
	Reason string    `json:"reason,omitempty"` // why it could not be started, or what Judge found
	Judged bool      `json:"judged,omitempty"` // it exited with code 0, and Reason is what Judge found wrong
	Hint   string    `json:"hint,omitempty"`   // possible cause of the signal
	Told   bool      `json:"told,omitempty"`   // it ended because it was told to end
	Clue   string    `json:"clue,omitempty"`   // reason that the rank has printed
	Aborts bool      `json:"aborts,omitempty"` // it has called abort with Code
	Time   time.Time `json:"time"`
}

// Text describes how the rank ended.
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

// Config configures a pod's ranks.
type Config struct {
	Socket      string
	First, Last int
	Program     []string
	Env         []string         // added to the environment of this process
	Prefix      bool             // put "[rank] " before each line
	Stdin       *os.File         // inherited by rank 0 of the world; nil: /dev/null
	Out, Err    io.Writer        // shared by all ranks, written in complete lines
	Status      io.Writer        // nil: no status lines
	Pod         int              // number of the pod, for the entries of Log
	Log         *podlife.Log     // nil: no termination message
	Unable      error            // why no rank of this pod can be started; nil: no reason is known
	Grace       time.Duration    // delay between SIGTERM and SIGKILL when a rank has failed; default 2 s
	Drain       time.Duration    // delay between SIGTERM and SIGKILL when this process is told to end; default Grace
	Signals     <-chan os.Signal // forwarded to every rank; SIGKILL kills those that are left

	// Dress returns variables of a rank in addition to Env, and files that it inherits as
	// descriptor 3 and following. The files are closed when the rank has started. May be
	// nil.
	Dress func(ctx context.Context, rank int) (env []string, files []*os.File, err error)
	// Judge returns what is wrong with a rank that has exited with code 0. It may wait for
	// other ranks until ctx ends, which it does when a rank has failed or this process is
	// told to end. May be nil.
	Judge func(ctx context.Context, rank int) error
	// Failed is called for the first rank that has failed or cannot be started, before the
	// other ranks are ended for it. May be nil.
	Failed func(rank, code int)
	// JobFailed asks the sidecar whether the job has failed. If it has when this process is
	// told to end, the ranks have Grace instead of Drain. The termination message of a pod
	// whose ranks have all exited with code 0 has the answer as well. An error means that
	// the sidecar gave no answer. May be nil.
	JobFailed func(ctx context.Context) (bool, error)
	// Aborts calls told for each rank that has called abort, with its exit code, and that
	// may wait to be ended; and, with lost, for each rank because of which the job has
	// failed and whose process may live. It returns when ctx ends. May be nil.
	Aborts func(ctx context.Context, told func(rank, code int, lost bool))
	// Clue creates the search for the reason of a rank's end in its standard error. May be nil.
	Clue func() Clue
	// Texts is called once, before ranks start. Texts that ranks print by process
	// management, as Open MPI 5 does, are passed to say, which prints them as standard
	// output (out) or error of the rank, calls printed then, and does not wait for the
	// readers of the output. May be nil.
	Texts func(say func(rank int, out bool, text string, printed func()))
	// Tidy is called when all ranks and all processes that they started have ended. May be nil.
	Tidy func() error

	killGroup func(int) // replaced by tests
	awaited   func()    // called by tests when a rank has ended, before its end is recorded
}

// Exit codes of programs that cannot be run, as in shells.
const (
	exitUnable        = 1 // something that the program needs is missing
	exitNotFound      = 127
	exitNotExecutable = 126
)

// CannotRun returns the exit code for an error of exec.LookPath.
func CannotRun(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitNotExecutable
}

// pod is a running set of ranks.
type pod struct {
	cfg     Config
	copies  sync.WaitGroup // goroutines that copy output
	stop    chan struct{}  // closed by the first failure
	hasten  func()         // ends calls of Judge that wait for other ranks
	out     *outlet.Writer // out and err may be the same
	err     *outlet.Writer
	silent  atomic.Bool // all processes that could print have ended
	reports sync.Mutex  // held while a status line is written
	tail    tail        // first and last lines of the ranks' output
	texts   texts       // texts that process management prints for the ranks

	mu     sync.Mutex // guards what follows
	procs  map[int]*running
	clues  map[int]*clued
	pipes  []*os.File     // read ends of the ranks' output
	ending syscall.Signal // sent to ranks that start while the pod ends; 0: the pod does not end
	told   bool           // this process was told to end
	// interrupted is set if a rank had not ended when this process was told to end.
	interrupted bool
	first       *Event // the first failure; nil: none
	failures    []podlife.Failure
	outcome     podlife.Outcome // if all ranks have exited with code 0
}

func newPod(cfg Config) *pod {
	return &pod{cfg: cfg, procs: map[int]*running{}, clues: map[int]*clued{}, stop: make(chan struct{}), hasten: func() {}, out: outlet.Wrap(cfg.Out), err: outlet.Wrap(cfg.Err)}
}

// Run runs the ranks to their end and returns the first failure, or nil. Run adopts
// processes that ranks leave behind, so that no other part of this process may start
// processes meanwhile.
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
		p.reportUnstarted(cfg.First, exitUnable, cfg.Unable)
		return p.first
	}
	path, err := exec.LookPath(cfg.Program[0])
	if err != nil {
		p.reportUnstarted(cfg.First, CannotRun(err), Advise(err))
		return p.first
	}
	Adopt()
	if cfg.Texts != nil {
		cfg.Texts(p.printText)
	}
	var wg, watch sync.WaitGroup
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx)) // Aborts goes on while the pod ends
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
			_, _ = fmt.Fprintln(cfg.Err, "outrigger-launch: tidying up:", err) // the result of the ranks does not change
		}
	}
	p.cutShort()
	p.conclude(ctx)
	p.writeMessage()
	p.finishOutput()
	if p.first != nil {
		p.writeMessage() // now with the last lines of output
	}
	return p.first
}

// reapPause is the time between two calls of reapOrphans.
const reapPause = time.Second

// supervise forwards signals, and ends all ranks on failure or cancellation: SIGTERM, then
// SIGKILL. The first of the two decides the grace period: a rank that writes a checkpoint
// because this process is told to end may exit with any code, which does not shorten the
// time of the others.
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
			p.forward(s)
		case <-stop:
			stop = nil
			end(p.cfg.Grace)
		case <-cancelled:
			cancelled = nil
			p.noteTold()
			if !ending && p.cfg.JobFailed != nil {
				watch.Go(func() {
					// An error means that the sidecar has ended, and says nothing about the job.
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

// exitTerminated is the exit code of a pod that was told to end, as in a shell.
const exitTerminated = 128 + int(unix.SIGTERM)

// cutShort reports a failure if the pod was told to end and its ranks have then exited with
// 0: a rank that writes a checkpoint when it is told to end has not done all its work.
// Precondition: all ranks have ended.
func (p *pod) cutShort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first != nil || !p.interrupted {
		return
	}
	p.first = &Event{Event: "failed", Rank: p.cfg.First, Code: exitTerminated, Told: true, Reason: "ended with code 0 because of SIGTERM, before its time", Time: time.Now()}
	p.addFailure(p.first)
}

// noteTold records that this process was told to end.
func (p *pod) noteTold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteEnded()
	p.told = true
	for _, proc := range p.procs {
		p.interrupted = p.interrupted || proc.orders == nil
	}
}

// end sends s to all ranks, and to ranks that are starting once they have started.
func (p *pod) end(s syscall.Signal) {
	p.mu.Lock()
	p.noteEnded()
	p.ending = s
	p.mu.Unlock()
	p.signal(s)
}

// forward forwards a signal that this process has received to the ranks.
func (p *pod) forward(s os.Signal) {
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

// notify sends s once to the process of each rank, and not to processes that the rank has
// started: s ends a process that does not handle it, and an mpirun forwards it to its
// ranks.
func (p *pod) notify(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.procs {
		_ = unix.Kill(proc.Pid, s) // it may just have ended
	}
}

// signal sends s to the process group of every rank. It returns false if no rank is left.
func (p *pod) signal(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.procs {
		_ = unix.Kill(-proc.Pid, s) // it may just have ended
	}
	return len(p.procs) > 0
}

// ends reports whether the user expects the ranks to end by a signal.
func ends(s syscall.Signal) bool { return s == unix.SIGINT || s == unix.SIGQUIT || s == unix.SIGHUP }

// abort ends a rank that has called abort, and may wait to be ended, or a lost one: SIGTERM, then
// SIGKILL. The other ranks are ended because of its end.
func (p *pod) abort(rank, code int, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	proc := p.procs[rank]
	if proc == nil || proc.aborts != 0 || proc.lost {
		return // it has ended, is of another launcher, or is being ended
	}
	if proc.lost = lost; !lost {
		proc.aborts = code
	}
	_ = unix.Kill(-proc.Pid, unix.SIGTERM) // it may just have ended
	time.AfterFunc(p.cfg.Grace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.procs[rank] == proc { // else the PID may have been reused
			_ = unix.Kill(-proc.Pid, unix.SIGKILL) // as above
		}
	})
}

// announce calls Failed for the failure of a rank if the pod ends because of it.
func (p *pod) announce(e *Event) {
	p.mu.Lock()
	first := p.first == nil && p.ending == 0
	p.mu.Unlock()
	if first && !e.Told && !e.Aborts && p.cfg.Failed != nil {
		p.cfg.Failed(e.Rank, e.Code)
	}
}

// reportUnstarted reports a rank that cannot be started. The sidecar is notified first; otherwise
// the sidecars of other pods would learn only that it leaves the job, and would blame it or
// their ranks.
func (p *pod) reportUnstarted(rank, code int, cause error) {
	e := &Event{Event: "failed", Rank: rank, Code: code, Reason: cause.Error(), Time: time.Now()}
	p.announce(e)
	p.fail(e)
}

// fail reports a failure, and starts the end of the pod. Of failures that are noticed in
// another order than they happened, the earliest counts.
func (p *pod) fail(e *Event) {
	p.mu.Lock()
	if p.first == nil {
		close(p.stop)
	}
	if p.first == nil || e.Time.Before(p.first.Time) {
		p.first = e
	}
	p.addFailure(e)
	p.mu.Unlock()
	p.hasten()
	p.hurry()
	p.writeMessage() // at once, because this process may be killed as well
	p.report(e)
}

// hurry stops waiting for readers of the output.
func (p *pod) hurry() {
	p.out.LimitWait()
	p.err.LimitWait()
}

func (p *pod) report(e *Event) {
	if p.cfg.Status == nil {
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		return // an Event can always be encoded
	}
	p.reports.Lock()
	defer p.reports.Unlock()
	_, _ = p.cfg.Status.Write(append(b, '\n')) // the reader may have gone
}
