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

// Failure is the first failure of a job, and the exit code of the program that runs it.
type Failure struct {
	Text    string
	Code    int
	Verdict *podlife.Verdict // nil: none of the job's programs has failed
	// Suspected means that the job was ended because of a suspected deadlock.
	Suspected bool
	// Done means that all ranks have ended with code 0: only a file of this program is
	// missing.
	Done bool
}

// CodeTimeout is the exit code of a job that was not finished within its Timeout, as of
// timeout(1), and of a job that a suspected deadlock has ended.
const CodeTimeout = 124

// CodeUnwritten is the exit code of a job whose ranks have all ended with code 0, and of
// which a trace, a report or a file of its directory could not be written: EX_IOERR of
// sysexits.h.
const CodeUnwritten = 74

// unwritten returns the failure of such a job.
func unwritten(err error) *Failure {
	return &Failure{Text: err.Error(), Code: CodeUnwritten, Done: true}
}

func (f *Failure) Error() string { return f.Text }

// Job is a running job.
type Job struct {
	spec            *Spec
	layout          *layout
	out, err        *outlet.Writer // output and errors; both may be the same Writer
	mu              sync.Mutex
	wg              sync.WaitGroup
	sidecars        []*exec.Cmd
	launches        []*exec.Cmd
	first           *Failure
	firstAt         time.Time
	reports         []podlife.Report         // what is known of each pod without a request to its sidecar
	gone            []time.Time              // for each pod, a time at which its sidecar had ended; zero: unknown
	agreed          map[int]*podlife.Message // each pod's answer when its sidecar was asked about a failure
	disputed        string                   // what ranks disagreed about before they failed; empty: unknown
	halted          []time.Time              // for each pod, the time since which its sidecar is stopped; zero: the sidecar runs
	failed          chan struct{}
	now             chan struct{} // closed by watchKill: no process has a grace any more
	logs            []*sidecarLog // the log of each pod's sidecar
	cause           error         // why the job is ended early; owned by Wait
	rankGrace       time.Duration // delay between SIGTERM and SIGKILL of ranks; owned by Wait
	over            chan struct{} // closed by end: the watching goroutines return
	ending          bool
	killed          map[int]bool  // processes that this process has killed
	sidecarsStopped bool          // the sidecars have received SIGTERM
	running         int           // number of launchers
	allEnded        chan struct{} // closed when all launchers have ended
	ended           []bool        // for each pod, whether all its ranks have ended with code 0
	ranks           map[int]bool  // the ranks that were started; true: the rank runs
	begun           time.Time
	launched        []time.Time       // for each pod, when its launcher was started
	started         map[int]time.Time // for each rank, when its process was started
	notices         map[int][]notice  // for each pod without a rank that is known to run, signals for its ranks
	entry           *registration     // nil: the job is not in the registry
}

// How long processes may take to end by themselves after SIGTERM.
const (
	// DefaultGrace is for ranks of a job that a person ends: they may write a checkpoint,
	// about which they agree by messages.
	DefaultGrace = 10 * time.Second
	// failGrace is for ranks of a job that has failed, or has no time left.
	failGrace = 2 * time.Second
	// grace is for sidecars, and for launchers whose ranks have ended.
	grace = 3 * time.Second
)

// Run runs a job to its end. If report is not nil, it is called with the sidecars' reports
// after all ranks have ended with code 0 and before the sidecars stop.
func Run(ctx context.Context, s *Spec, out, errOut io.Writer, report func([]obs.Report) error) error {
	j, err := Start(ctx, s, out, errOut)
	if err != nil {
		return err
	}
	return j.Wait(ctx, report)
}

// Start starts the job's processes. Their output goes to out and errOut. While the job
// runs, it waits for the readers of its output; its end does not (package outlet).
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
	_, registryErr := Jobs() // Jobs also removes the files of killed jobs
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
		failed: make(chan struct{}), allEnded: make(chan struct{}), ranks: map[int]bool{}, started: map[int]time.Time{}, notices: map[int][]notice{}, launched: make([]time.Time, s.Pods), killed: map[int]bool{}, ended: make([]bool, s.Pods), gone: make([]time.Time, s.Pods),
		rankGrace: failGrace, halted: make([]time.Time, s.Pods), over: make(chan struct{}), now: make(chan struct{}),
	}
	j.out.ResetWait() // an earlier attempt may have called Hurry
	j.err.ResetWait()
	for i, p := range l.doc.Pods {
		j.reports = append(j.reports, podlife.Report{Pod: i, FirstRank: p.FirstRank, Ranks: p.Ranks})
	}
	if registryErr == nil {
		j.entry, registryErr = register(s, l)
	}
	if registryErr != nil {
		j.err.OfferReserved(fmt.Sprintf("outrigger: `outrigger top` will not see this job: %v\n", registryErr)) // the job runs without an entry
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

// cannotStart returns the failure of a program that no rank can run.
func cannotStart(program string, err error) *Failure {
	why := strings.TrimPrefix(launch.Advise(err).Error(), fmt.Sprintf("exec: %q: ", program))
	if p := new(fs.PathError); errors.As(err, &p) { // it contains the name as well
		why = strings.TrimPrefix(why, p.Op+" "+p.Path+": ")
	}
	text := fmt.Sprintf("program %s: %s", program, why)
	return &Failure{Text: text, Code: launch.CannotRun(err), Verdict: &podlife.Verdict{Failure: podlife.Failure{
		Code: launch.CannotRun(err), Reason: podlife.CannotStart, Text: text, Time: time.Now(),
	}}}
}

// Succeeded reports for each pod whether all its ranks have ended with code 0.
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

// Progress returns how far the job is.
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

// Metrics returns the sidecars' metrics sockets, one for each pod.
func (j *Job) Metrics() []string {
	list := make([]string, j.spec.Pods)
	for i := range list {
		list[i] = j.layout.metrics(i)
	}
	return list
}

// fail keeps the earliest failure and starts the end of the job. Failures that the end
// itself causes come later and do not count. Failures that are reported late are part of
// the search for the cause, in which the earliest need not be the cause.
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
