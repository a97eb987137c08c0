package jobrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// settle is how long the job waits, after its first failure, for the report of
// an earlier one: a rank that dies makes others fail, and their news may be
// faster than its own.
const settle = 300 * time.Millisecond

// Wait waits for the end of the job, ends what is left of it, and returns the
// first failure. A job that has ended well waits for the readers of its output.
func (j *Job) Wait(asked context.Context, report func([]obs.Report) error) error {
	ctx, cancel := j.deadline(asked)
	defer cancel()
	defer context.AfterFunc(ctx, j.hurry)()
	var err, missing error
	outcome := j.outcome(ctx)
	ending, unwatch := j.watchKill(asked, outcome)
	defer unwatch()
	switch outcome {
	case endedWell:
		if j.consult(ctx); j.failure() == nil && report != nil {
			missing = j.report(ctx, report)
		}
	case hasFailed:
		time.Sleep(settle)
		j.consult(ending)
		j.nameDisagreement(ending)
		f := j.failure()
		if f.Suspected || f.ofSidecar() {
			j.tellEnd(ending, f)
		}
		j.cause = f
	case interrupted:
		err = interruption(ctx)
		j.explain(ending, err)
		if asked.Err() != nil { // by a person, for whom ranks may write a checkpoint
			j.patience = j.grace()
			j.tellSidecars(ending, "/drain", err)
		} else {
			j.tellEnd(ending, err)
		}
		j.cause = err
	}
	missing = errors.Join(missing, j.saveTrace(ending))
	endErr := j.end()
	lost, outErr := j.finishOutput()
	switch f := j.failure(); {
	case f != nil && err == nil:
		return f
	case f == nil && err == nil && lost && ctx.Err() != nil: // by who would not wait for the readers
		err = interruption(ctx)
	case err == nil: // a result that nobody has is none
		err = outErr
	}
	if err != nil || endErr != nil {
		return errors.Join(err, endErr, missing)
	}
	if missing = errors.Join(missing, j.logErr()); missing != nil {
		return unwritten(missing)
	}
	return nil
}

// outcome is what ends the wait for a job.
type outcome int

const (
	endedWell outcome = iota // all launchers, and none has told of a failure
	hasFailed
	interrupted
)

// outcome waits for it. A failure may be found together with the end of all launchers, or
// of the job's time, by a process that has waited for a processor: it goes first.
func (j *Job) outcome(ctx context.Context) outcome {
	select {
	case <-j.allEnded:
	case <-j.failed:
	case <-ctx.Done():
	}
	if j.failure() != nil {
		return hasFailed
	}
	select {
	case <-j.allEnded:
		return endedWell
	default:
		return interrupted
	}
}

// deadline is ctx with the end that the job's time has.
func (j *Job) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if j.spec.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, j.spec.Timeout, &Failure{Text: fmt.Sprintf("not finished within %v", j.spec.Timeout), Code: CodeTimeout})
}

// hurry lets nothing wait any more for those who read the output.
func (j *Job) hurry() {
	j.out.LimitWait()
	j.err.LimitWait()
}

// finishOutput waits for the readers of the output, and says what they have not
// taken. unwritten is why output could not be written: a full disk, for example.
func (j *Job) finishOutput() (lost bool, unwritten error) {
	n := j.out.Flush()
	if j.err != j.out {
		n += j.err.Flush()
	}
	if n > 0 {
		j.err.OfferReserved(fmt.Sprintf("outrigger: %d bytes of output are dropped: nobody reads them\n", n))
		j.err.Flush()
	}
	if unwritten = j.out.Err(); unwritten == nil {
		unwritten = j.err.Err()
	}
	if unwritten != nil {
		unwritten = fmt.Errorf("output of the ranks: %w", unwritten)
	}
	return n > 0, unwritten
}

// explainWithin bounds the look at what ranks wait for: a sidecar that is stopped
// must not keep the job from its end.
const explainWithin = 2 * time.Second

// How long all ranks, or one of them, must have waited for a job that a person ends to
// be explained: one that went on needs no explanation, and a rank that waits for another
// one's work is nothing to speak of.
const (
	hangsFor = time.Second
	holdsFor = 5 * time.Second
)

// explain says what the ranks wait for when the job is ended before its time: by
// its timeout, or for another cause if they have waited for long.
func (j *Job) explain(ctx context.Context, cause error) {
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	sockets := make([]string, j.spec.Pods)
	for i := range sockets {
		sockets[i] = j.layout.metrics(i)
	}
	ranks, err := Why(ctx, sockets)
	var f *Failure
	late := errors.As(cause, &f) && f.Code == CodeTimeout
	if !late && !why.Stuck(ranks, hangsFor) && why.Halted(ranks, hangsFor) == nil && !why.Holds(ranks, holdsFor) {
		return
	}
	lines := why.Explain(ranks)
	for pod, c := range j.launches {
		if isStopped(c.Process.Pid) {
			lines = append(lines, fmt.Sprintf("the launcher of pod %d is stopped (process %d): it does not see how its ranks end", pod, c.Process.Pid))
		}
	}
	if err != nil {
		lines = append(lines, "what other ranks wait for is not known: "+err.Error())
	}
	for _, line := range lines {
		j.err.OfferReserved("outrigger: " + line + "\n")
	}
}

// ofSidecar reports that a sidecar is to blame. The others wait for it to come back, and
// so do not know yet that the job has failed.
func (f *Failure) ofSidecar() bool {
	return f.Verdict != nil && (f.Verdict.Reason == podlife.SidecarLost || f.Verdict.Reason == podlife.SidecarFailed)
}

// tellEnd tells the sidecars why the job is ended of whose failure they have not heard:
// ranks that outlive others by a moment would say that those have vanished.
func (j *Job) tellEnd(ctx context.Context, cause error) { j.tellSidecars(ctx, "/end", cause) }

// tellSidecars tells all sidecars the cause, by a path of their metrics sockets.
func (j *Job) tellSidecars(ctx context.Context, path string, cause error) {
	text := cause.Error()
	if f := (*Failure)(nil); errors.As(cause, &f) {
		text = f.Text
	}
	ctx, cancel := context.WithTimeout(ctx, consultTime)
	defer cancel()
	var wg sync.WaitGroup
	for pod, socket := range j.Metrics() {
		if !j.stopped(pod) { // else it cannot listen
			wg.Go(func() { _ = ask(ctx, socket, http.MethodPost, path, text, nil) }) // one that has ended knows
		}
	}
	wg.Wait()
}

// interruption is the Failure with which ctx was cancelled, or the usual one.
func interruption(ctx context.Context) error {
	var f *Failure
	if errors.As(context.Cause(ctx), &f) {
		return f
	}
	return &Failure{Text: "interrupted", Code: 130}
}

func (j *Job) failure() *Failure {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.first
}

// grace is how long ranks have when a person ends the job.
func (j *Job) grace() time.Duration {
	if j.spec.Grace > 0 {
		return j.spec.Grace
	}
	return DefaultGrace
}

// end stops every process, launchers before sidecars, and removes the job's
// directory.
func (j *Job) end() error {
	j.mu.Lock()
	if !j.ending && j.running == 0 && len(j.launches) < j.spec.Pods {
		close(j.allEnded) // not all were started, and nobody else will tell
	}
	j.ending = true
	j.mu.Unlock()
	close(j.over)
	j.stop(j.launches)
	j.awaitRanks()
	j.killOrphans() // else their sidecar waits for them
	j.mu.Lock()
	j.dismissed = true
	j.mu.Unlock()
	j.stop(j.sidecars)
	done := make(chan struct{})
	go func() { j.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-j.now:
		j.kill(j.sidecars)
		<-done
	case <-time.After(grace):
		j.kill(append(j.launches, j.sidecars...))
		<-done
	}
	j.killOrphans()
	if f := j.failure(); f == nil || !f.Suspected {
		j.hearLastWords()
	}
	return errors.Join(j.entry.remove(), j.layout.remove())
}

// stop tells processes to end. One that is stopped cannot: it is killed.
func (j *Job) stop(cmds []*exec.Cmd) {
	for _, c := range cmds {
		_ = c.Process.Signal(unix.SIGTERM) // it may have ended
		if isStopped(c.Process.Pid) {
			j.kill([]*exec.Cmd{c})
		}
	}
}

func (j *Job) kill(cmds []*exec.Cmd) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range cmds {
		j.slain[c.Process.Pid] = true
		_ = unix.Kill(-c.Process.Pid, unix.SIGKILL) // it may have ended
	}
}

// killedByOther reports whether a process that has ended was killed, and not by this one:
// that is a cause whenever it is heard. j.mu is held.
func (j *Job) killedByOther(c *exec.Cmd) bool {
	ws, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() != unix.SIGTERM && !j.slain[c.Process.Pid]
}

// killOrphans ends what a launcher has left that was killed. Launchers end what their ranks
// leave behind, and so leave nothing if they end by themselves.
func (j *Job) killOrphans() {
	if !j.spec.Adopts {
		return
	}
	var own []int
	for _, c := range slices.Concat(j.sidecars, j.launches) {
		own = append(own, c.Process.Pid)
	}
	launch.KillOrphans(own...)
}

// report asks every sidecar what it has done.
func (j *Job) report(ctx context.Context, use func([]obs.Report) error) error {
	var all []obs.Report
	for i := range j.spec.Pods {
		r, err := FetchReport(ctx, j.layout.metrics(i))
		if err != nil {
			return fmt.Errorf("report of pod %d: %w", i, err)
		}
		all = append(all, *r)
	}
	return use(all)
}

// FetchReport gets a sidecar's report from its metrics socket.
func FetchReport(ctx context.Context, socket string) (*obs.Report, error) {
	r := new(obs.Report)
	return r, fetch(ctx, socket, "/report", r)
}

// Why asks the sidecars of a job, by their metrics sockets, what their ranks wait
// for. Those of a sidecar that does not answer are missing, and its error is told; of one
// whose process is stopped at once.
func Why(ctx context.Context, sockets []string) (ranks []why.Rank, err error) {
	answers, errs := make([][]why.Rank, len(sockets)), make([]error, len(sockets))
	var wg sync.WaitGroup
	for pod, socket := range sockets {
		wg.Go(func() {
			if err := fetchUnlessStopped(ctx, socket, "/why", &answers[pod]); err != nil {
				errs[pod] = fmt.Errorf("pod %d: %w", pod, err)
			}
		})
	}
	wg.Wait()
	return slices.Concat(answers...), errors.Join(errs...)
}

// answerPatience is how long a sidecar may say nothing of an answer, its beginning or
// what follows. Not how long the answer takes: a timeline is tens of megabytes, and the
// machine may be busy.
const answerPatience = 5 * time.Second

// errNoAnswer is why a question was given up.
var errNoAnswer = fmt.Errorf("its sidecar has said nothing for %v", answerPatience)

// fetch gets what a sidecar answers at path.
func fetch(ctx context.Context, socket, path string, into any) error {
	return ask(ctx, socket, http.MethodGet, path, "", into)
}

// ask sends a sidecar a request; into nil: its answer is its status.
func ask(ctx context.Context, socket, method, path, body string, into any) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	silence := time.AfterFunc(answerPatience, func() { giveUp(errNoAnswer) })
	defer silence.Stop()
	err := exchange(ctx, socket, method, path, body, into, silence)
	if errors.Is(context.Cause(ctx), errNoAnswer) && err != nil {
		return errNoAnswer
	}
	return err
}

// heard is a body that says when something of it has come.
type heard struct {
	io.Reader
	silence *time.Timer
}

func (h heard) Read(b []byte) (int, error) {
	n, err := h.Reader.Read(b)
	if n > 0 {
		h.silence.Reset(answerPatience)
	}
	return n, err
}

func exchange(ctx context.Context, socket, method, path, body string, into any, silence *time.Timer) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://sidecar"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(heard{resp.Body, silence}).Decode(into)
}
