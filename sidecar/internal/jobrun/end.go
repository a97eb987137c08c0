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

// settle is how long the job waits, after its first failure, for the report of an earlier
// one: a rank that dies makes others fail, whose reports may be faster.
const settle = 300 * time.Millisecond

// Wait waits for the end of the job, ends the processes that are left, and returns the
// first failure. A job that has ended without a failure waits for the readers of its
// output.
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
			j.notifyEnd(ending, f)
		}
		j.cause = f
	case interrupted:
		err = interruption(ctx)
		j.explain(ending, err)
		if asked.Err() != nil { // a person ended the job: ranks may write a checkpoint
			j.rankGrace = j.grace()
			j.notifySidecars(ending, "/drain", err)
		} else {
			j.notifyEnd(ending, err)
		}
		j.cause = err
	}
	missing = errors.Join(missing, j.saveTrace(ending))
	endErr := j.end()
	lost, outErr := j.finishOutput()
	switch f := j.failure(); {
	case f != nil && err == nil:
		return f
	case f == nil && err == nil && lost && ctx.Err() != nil: // the person did not wait for the readers
		err = interruption(ctx)
	case err == nil: // a job whose output is lost has failed
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
	endedWell outcome = iota // all launchers have ended, and none has reported a failure
	hasFailed
	interrupted
)

// outcome waits for the outcome. If this process has waited for a CPU, it may find a
// failure together with the end of all launchers, or of the job's time: the failure takes
// precedence.
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

// deadline returns ctx with the end of the job's time.
func (j *Job) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if j.spec.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, j.spec.Timeout, &Failure{Text: fmt.Sprintf("not finished within %v", j.spec.Timeout), Code: CodeTimeout})
}

// hurry stops all waits for the readers of the output.
func (j *Job) hurry() {
	j.out.LimitWait()
	j.err.LimitWait()
}

// finishOutput waits for the readers of the output, and reports how much they have not
// read. unwritten is why output could not be written, for example a full disk.
func (j *Job) finishOutput() (lost bool, unwritten error) {
	n := j.out.Flush()
	if j.err != j.out {
		n += j.err.Flush()
	}
	if n > 0 {
		j.err.OfferReserved(fmt.Sprintf("outrigger: %d bytes of output are dropped: no process reads them\n", n))
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

// explainWithin bounds the requests for what ranks wait for, so that a stopped sidecar does
// not keep the job from its end.
const explainWithin = 2 * time.Second

// How long all ranks, or one of them, must have waited for their waits to be explained when
// a person ends the job: a job that made progress needs no explanation, and neither does a
// rank that waits for another rank's computation.
const (
	hangsFor = time.Second
	holdsFor = 5 * time.Second
)

// explain prints what the ranks wait for when the job is ended early: by its timeout, or
// for another cause if they have waited for long.
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

// ofSidecar reports whether a sidecar caused the failure. The other sidecars wait for it to
// return, and do not know yet that the job has failed.
func (f *Failure) ofSidecar() bool {
	return f.Verdict != nil && (f.Verdict.Reason == podlife.SidecarLost || f.Verdict.Reason == podlife.SidecarFailed)
}

// notifyEnd tells the sidecars why the job ends if they do not know of the failure:
// otherwise ranks that outlive others by a moment would report that those have vanished.
func (j *Job) notifyEnd(ctx context.Context, cause error) { j.notifySidecars(ctx, "/end", cause) }

// notifySidecars posts the cause to all sidecars, at a path of their metrics sockets.
func (j *Job) notifySidecars(ctx context.Context, path string, cause error) {
	text := cause.Error()
	if f := (*Failure)(nil); errors.As(cause, &f) {
		text = f.Text
	}
	ctx, cancel := context.WithTimeout(ctx, consultTime)
	defer cancel()
	var wg sync.WaitGroup
	for pod, socket := range j.Metrics() {
		if !j.stopped(pod) { // otherwise it cannot read
			wg.Go(func() { _ = request(ctx, socket, http.MethodPost, path, text, nil) }) // a sidecar that has ended knows the cause
		}
	}
	wg.Wait()
}

// interruption returns the Failure with which ctx was cancelled, or the usual one.
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

// grace returns how long ranks may take to end when a person ends the job.
func (j *Job) grace() time.Duration {
	if j.spec.Grace > 0 {
		return j.spec.Grace
	}
	return DefaultGrace
}

// end stops every process, launchers before sidecars, and removes the job's directory.
func (j *Job) end() error {
	j.mu.Lock()
	if !j.ending && j.running == 0 && len(j.launches) < j.spec.Pods {
		close(j.allEnded) // not all launchers were started, and none will report
	}
	j.ending = true
	j.mu.Unlock()
	close(j.over)
	j.stop(j.launches)
	j.awaitRanks()
	j.killOrphans() // otherwise their sidecar waits for them
	j.mu.Lock()
	j.sidecarsStopped = true
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
		j.readFinalMessages()
	}
	return errors.Join(j.entry.remove(), j.layout.remove())
}

// stop sends SIGTERM to processes. A process that is stopped cannot handle it: it is
// killed.
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
		j.killed[c.Process.Pid] = true
		_ = unix.Kill(-c.Process.Pid, unix.SIGKILL) // it may have ended
	}
}

// killedByOther reports whether a process that has ended was killed by another process than
// this one: that is a cause whenever it is noticed. j.mu is held.
func (j *Job) killedByOther(c *exec.Cmd) bool {
	ws, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() != unix.SIGTERM && !j.killed[c.Process.Pid]
}

// killOrphans kills the processes left by a launcher that was killed. A launcher that ends
// by itself kills what its ranks leave behind.
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

// report passes the reports of all sidecars to use.
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

// Why asks the sidecars of a job, by their metrics sockets, what their ranks wait for. If a
// sidecar does not answer, its ranks are missing and the error says why; if its process is
// stopped, the error is returned at once.
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

// answerSilence bounds how long a sidecar may send no byte of an answer, at its beginning
// or in the middle. It does not bound the whole answer: a timeline is tens of megabytes,
// and the machine may be busy.
const answerSilence = 5 * time.Second

// errNoAnswer is the cause of a request that was cancelled.
var errNoAnswer = fmt.Errorf("its sidecar has said nothing for %v", answerSilence)

// fetch gets what a sidecar answers at path.
func fetch(ctx context.Context, socket, path string, into any) error {
	return request(ctx, socket, http.MethodGet, path, "", into)
}

// request sends a request to a sidecar. If into is nil, only the status of the answer
// matters.
func request(ctx context.Context, socket, method, path, body string, into any) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	silence := time.AfterFunc(answerSilence, func() { giveUp(errNoAnswer) })
	defer silence.Stop()
	err := exchange(ctx, socket, method, path, body, into, silence)
	if errors.Is(context.Cause(ctx), errNoAnswer) && err != nil {
		return errNoAnswer
	}
	return err
}

// watchedBody is a body whose reads reset a timer.
type watchedBody struct {
	io.Reader
	silence *time.Timer
}

func (h watchedBody) Read(b []byte) (int, error) {
	n, err := h.Reader.Read(b)
	if n > 0 {
		h.silence.Reset(answerSilence)
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
	defer func() { _ = resp.Body.Close() }() // it was read to its end
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(watchedBody{resp.Body, silence}).Decode(into)
}
