package jobrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// Failure is what went wrong first, and the exit code to give.
type Failure struct {
	Text    string
	Code    int
	Verdict *podlife.Verdict // nil: none of the job's programs has failed
	// Suspected says that the job was ended for a suspected deadlock.
	Suspected bool
	// Done says that all ranks have ended well: what is missing is of ours.
	Done bool
}

// CodeTimeout is the exit code of a job that was not finished within its Timeout,
// as timeout(1) has it, and of one that a suspected deadlock has ended.
const CodeTimeout = 124

// CodeUnwritten is the exit code of a job whose ranks have all ended well, and of which a
// trace, a report or a file of its directory could not be written: EX_IOERR of sysexits.h.
const CodeUnwritten = 74

// unwritten is the end of such a job.
func unwritten(err error) *Failure {
	return &Failure{Text: err.Error(), Code: CodeUnwritten, Done: true}
}

func (f *Failure) Error() string { return f.Text }

// Job is a running job.
type Job struct {
	spec      *Spec
	layout    *layout
	out, err  *outlet.Writer // which may be one
	mu        sync.Mutex
	wg        sync.WaitGroup
	sidecars  []*exec.Cmd
	launches  []*exec.Cmd
	first     *Failure
	firstAt   time.Time
	stories   []podlife.Report         // by pod, what is known without asking the sidecars
	gone      []time.Time              // by pod, a time at which its sidecar had ended; zero: nothing is known
	agreed    map[int]*podlife.Message // by pod, what its sidecar knew of a failure when it was asked
	disputed  string                   // what ranks disagreed about before they failed; empty: nothing is known
	halted    []time.Time              // by pod, since when its sidecar is stopped; zero: it runs
	failed    chan struct{}
	now       chan struct{} // closed by kill: nothing has its grace any more
	logs      []*sidecarLog // by pod
	cause     error         // why the job is ended before its time; owned by Wait
	patience  time.Duration // of ranks between SIGTERM and SIGKILL; owned by Wait
	over      chan struct{} // closed by end: nobody needs to be watched any more
	ending    bool
	slain     map[int]bool  // processes that got SIGKILL from this one
	dismissed bool          // the sidecars have been told to end
	running   int           // launchers
	allEnded  chan struct{} // closed when all of them have
	ended     []bool        // by pod; true: all its ranks have ended well
	ranks     map[int]bool  // started ones; true: it runs
	begun     time.Time
	launched  []time.Time       // by pod, when its launcher was started
	started   map[int]time.Time // when ranks' processes were
	entry     *registration     // nil: not in the registry
}

// How long processes get to end by themselves after SIGTERM.
const (
	// DefaultGrace is that of ranks of a job that a person ends: for a checkpoint, about
	// which the ranks agree by messages.
	DefaultGrace = 10 * time.Second
	// failGrace is that of ranks of a job that has failed, or has no time left.
	failGrace = 2 * time.Second
	// grace is that of sidecars, and of launchers whose ranks have ended.
	grace = 3 * time.Second
)

// Run runs a job to its end. report, when not nil, is called with the sidecars'
// reports after all ranks have ended well and before the sidecars stop.
func Run(ctx context.Context, s *Spec, out, errOut io.Writer, report func([]obs.Report) error) error {
	j, err := Start(ctx, s, out, errOut)
	if err != nil {
		return err
	}
	return j.Wait(ctx, report)
}

// Start starts the job's processes. What they print goes to out and errOut; a job
// that runs waits for their readers, its end does not (package outlet).
func Start(ctx context.Context, s *Spec, out, errOut io.Writer) (*Job, error) {
	j, err := start(s, out, errOut)
	return j, launch.Advise(err)
}

func start(s *Spec, out, errOut io.Writer) (*Job, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	sidecar, err := companion("outrigger-sidecar")
	if err != nil {
		return nil, err
	}
	launcher, err := companion("outrigger-launch")
	if err != nil {
		return nil, err
	}
	if err := s.checkTrace(); err != nil {
		return nil, err
	}
	for _, c := range s.commands() {
		if _, err := exec.LookPath(c.Program[0]); err != nil {
			return nil, cannotStart(c.Program[0], err)
		}
	}
	_, registryErr := Jobs() // which also removes what killed jobs left behind
	places, err := session.MemoryPools()
	if err != nil {
		return nil, err
	}
	document, err := s.fit(places)
	if err != nil {
		return nil, err
	}
	l, err := prepare(s, document)
	if err != nil {
		return nil, err
	}
	j := &Job{
		spec: s, layout: l, out: outlet.Wrap(out), err: outlet.Wrap(errOut), begun: time.Now(),
		failed: make(chan struct{}), allEnded: make(chan struct{}), ranks: map[int]bool{}, started: map[int]time.Time{}, launched: make([]time.Time, s.Pods), slain: map[int]bool{}, ended: make([]bool, s.Pods), gone: make([]time.Time, s.Pods),
		patience: failGrace, halted: make([]time.Time, s.Pods), over: make(chan struct{}), now: make(chan struct{}),
	}
	j.out.ResetWait() // an attempt before this one may have left them in a hurry
	j.err.ResetWait()
	for i, p := range l.doc.Pods {
		j.stories = append(j.stories, podlife.Report{Pod: i, FirstRank: p.FirstRank, Ranks: p.Ranks})
	}
	if registryErr == nil {
		j.entry, registryErr = register(s, l)
	}
	if registryErr != nil {
		j.err.OfferReserved(fmt.Sprintf("outrigger: `outrigger top` will not see this job: %v\n", registryErr)) // the job runs without it
	}
	if s.Adopts {
		launch.Adopt()
	}
	for i := range s.Pods {
		if err := j.startSidecar(sidecar, i); err != nil {
			j.hurry()
			return nil, errors.Join(err, j.end())
		}
	}
	l.closeListens()
	for i := range s.Pods {
		if err := j.startLauncher(launcher, i); err != nil {
			j.hurry()
			return nil, errors.Join(err, j.end())
		}
	}
	j.wg.Go(j.watchStopped)
	j.wg.Go(j.watchDeadlock)
	j.wg.Go(j.watchDisagreement)
	j.wg.Go(j.passOnNotices)
	return j, nil
}

// cannotStart is the failure of a program that no rank can run.
func cannotStart(program string, err error) *Failure {
	why := strings.TrimPrefix(launch.Advise(err).Error(), fmt.Sprintf("exec: %q: ", program))
	if p := new(fs.PathError); errors.As(err, &p) { // which has the name as well
		why = strings.TrimPrefix(why, p.Op+" "+p.Path+": ")
	}
	text := fmt.Sprintf("program %s: %s", program, why)
	return &Failure{Text: text, Code: launch.CannotRun(err), Verdict: &podlife.Verdict{Failure: podlife.Failure{
		Code: launch.CannotRun(err), Reason: podlife.CannotStart, Text: text, Time: time.Now(),
	}}}
}

// Succeeded says of each pod whether all its ranks have ended well.
func (j *Job) Succeeded() []bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.ended)
}

// Progress is how far a running job is.
type Progress struct {
	Begun          time.Time
	Started, Alive int // ranks
}

// Progress tells how far the job is.
func (j *Job) Progress() Progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := Progress{Begun: j.begun, Started: len(j.ranks)}
	for _, alive := range j.ranks {
		if alive {
			p.Alive++
		}
	}
	return p
}

// Metrics are the sidecars' metrics sockets, one a pod.
func (j *Job) Metrics() []string {
	list := make([]string, j.spec.Pods)
	for i := range list {
		list[i] = j.layout.metrics(i)
	}
	return list
}

// fail keeps the earliest failure and starts the end of the job. Failures that
// the end itself brings about come later and do not count; those that are heard of late
// are part of the inquiry, in which the earliest need not be the cause.
func (j *Job) fail(f *Failure, at time.Time) {
	j.hurry()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == nil {
		close(j.failed)
	}
	if j.first == nil || at.Before(j.firstAt) {
		j.first, j.firstAt = f, at
	}
}

func (j *Job) launcherEnded(pod int, well bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended[pod] = well
	j.running--
	if j.running == 0 && (j.ending || len(j.launches) == j.spec.Pods) {
		close(j.allEnded)
	}
}
