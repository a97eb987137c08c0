package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/manifest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// manifestRun is a run of an MPIJob, with all its attempts.
type manifestRun struct {
	o           *runOptions
	plan        *manifest.Plan
	begun       time.Time
	stdin       *os.File        // standard input of rank 0 if the job names no file
	reported    map[string]bool // messages that reportOnce has printed
	transports  []string        // transports in use between pods
	lastFailure *v1alpha1.Failure
}

// graceMax bounds the grace period of a manifest, in seconds: a time.Duration of about
// 2^33 seconds would overflow.
const graceMax = 1<<31 - 1

// run runs the job, and starts all ranks again after a failure as often as its
// run policy allows.
func (m *manifestRun) run(ctx context.Context) error {
	m.begun = time.Now()
	for number := 0; ; number++ {
		s, err := m.spec(number)
		var j *jobrun.Job
		if err == nil {
			j, err = m.o.run(ctx, s, m.readReports)
		}
		var done *jobrun.Failure
		if errors.As(err, &done) && done.Done {
			return errors.Join(m.writeStatus(m.attemptEnd(j, number, nil)), jobError(err))
		}
		end := m.attemptEnd(j, number, err)
		if err == nil {
			return m.writeStatus(end)
		}
		if j == nil || ctx.Err() != nil || !m.plan.Restartable(number, end.Failure) {
			return errors.Join(m.writeStatus(end), fmt.Errorf("job failed: %w", m.deadlineError(err)))
		}
		m.o.report("%v: restart %d of at most %d", err, number+1, m.plan.RestartLimit)
	}
}

// spec returns the specification of an attempt on this machine.
func (m *manifestRun) spec(number int) (*jobrun.Spec, error) {
	s := m.o.spec
	s.Name, s.Ranks, s.Pods = m.plan.Job.Name, int(m.plan.Job.Spec.Ranks), m.plan.Pods
	s.Document = m.plan.Attempt(number).Document("")
	s.AsksForArena = jobdoc.AsksForArena(&m.plan.Job.Spec)
	s.WorkDir = m.workDir()
	s.MPI = strings.ToLower(string(m.plan.Job.Spec.MPI)) // the launcher's --mpi is in lower case
	s.Stdin, s.StdinFile = m.stdin, m.plan.Job.Spec.StdinFile
	s.Container = m.plan.Job.Spec.LaunchMode == v1alpha1.LaunchContainer
	if g := m.plan.Job.Spec.Template.Spec.TerminationGracePeriodSeconds; g != nil && !m.o.cmd.Flags().Changed("grace") {
		s.Grace = time.Duration(max(1, min(*g, graceMax))) * time.Second
	}
	policy := &m.plan.Job.Spec.RunPolicy
	s.Deadlock = jobrun.Deadlock{After: m.plan.Deadlock, Fails: policy.DeadlockAction == v1alpha1.DeadlockFail}
	if s.Deadlock.After < 0 {
		s.Deadlock.After = deadlockAfter
	}
	for pod := range m.plan.Pods {
		program, env := m.plan.Program(number, pod)
		found, err := m.findProgram(program[0], s.WorkDir)
		if err != nil {
			return nil, err
		}
		program[0] = found
		s.ByPod = append(s.ByPod, jobrun.Command{Program: program, Env: env})
	}
	if m.plan.Deadline > 0 {
		// 0 would mean no timeout: an expired deadline remains a deadline.
		s.Timeout = max(m.plan.Deadline-time.Since(m.begun), time.Nanosecond)
	}
	return &s, nil
}

// readReports reads the transports from the sidecars' reports when all ranks have ended
// well, and shows the reports if that is asked for.
func (m *manifestRun) readReports(all []obs.Report) error {
	for _, r := range all {
		for _, t := range r.Transport {
			if t.Transport != "local" && !slices.Contains(m.transports, t.Transport) {
				m.transports = append(m.transports, t.Transport)
			}
		}
	}
	if show := m.o.showReport(); show != nil {
		return show(all)
	}
	return nil
}

// attemptEnd returns the result of an attempt; j is nil if it could not be started.
func (m *manifestRun) attemptEnd(j *jobrun.Job, number int, err error) *manifest.End {
	e := &manifest.End{Begun: m.begun, Ended: time.Now(), Restarts: number, Transports: m.transports, Complete: err == nil}
	if j != nil {
		e.Succeeded = j.Succeeded()
	}
	if err != nil {
		m.lastFailure = m.failure(err, number)
		m.lastFailure.Time = &metav1.Time{Time: e.Ended}
	}
	e.Failure = m.lastFailure
	return e
}

// failure returns the first failure of an attempt as the job's status reports it.
func (m *manifestRun) failure(err error, number int) *v1alpha1.Failure {
	attempt := int32(number)
	f := &v1alpha1.Failure{Reason: v1alpha1.ReasonUnknown, Message: m.deadlineError(err).Error(), Attempt: &attempt}
	var failed *jobrun.Failure
	switch {
	case !errors.As(err, &failed):
		return f
	case failed.Suspected:
		f.Reason = v1alpha1.ReasonSuspectedDeadlock
		return f
	case failed.Verdict == nil && failed.Code == jobrun.CodeTimeout:
		f.Reason = v1alpha1.ReasonDeadlineExceeded
		return f
	}
	code := int32(failed.Code)
	f.ExitCode = &code
	v := failed.Verdict
	switch {
	case v != nil:
	case failed.Code == launch.CannotRun(fs.ErrNotExist): // the program does not exist
		f.Reason = string(podlife.CannotStart)
		return f
	default: // a signal has ended the job
		f.Reason = string(podlife.Terminated)
		return f
	}
	f.Reason, f.Message = string(v.Reason), v.Text
	if v.Rank != podlife.NoRank {
		rank := int32(v.Rank)
		f.Rank = &rank
	}
	if v.Pod >= 0 {
		f.Pod = m.plan.Attempt(number).PodName(int32(v.Pod))
		f.Node = m.plan.Node()
	}
	return f
}

// deadlineError replaces the error of an expired timeout by one that names the manifest's
// deadline: the timeout of the last attempt is the rest of it.
func (m *manifestRun) deadlineError(err error) error {
	var f *jobrun.Failure
	if errors.As(err, &f) && f.Verdict == nil && f.Code == jobrun.CodeTimeout && !f.Suspected {
		return &jobrun.Failure{Text: fmt.Sprintf("not finished within %d s", m.plan.Deadline/time.Second), Code: f.Code}
	}
	return err
}

// writeStatus prints the job's first failure, and writes the MPIJob with its status to the
// file of --status.
func (m *manifestRun) writeStatus(e *manifest.End) error {
	job := m.plan.Job.DeepCopy()
	job.Status = m.plan.Status(e)
	if !e.Complete {
		text, err := yaml.Marshal(map[string]any{"firstFailure": job.Status.FirstFailure})
		if err != nil {
			return fmt.Errorf("status: %w", err)
		}
		m.o.err.OfferReserved(string(text))
		m.o.err.Flush()
	}
	if m.o.status == "" {
		return nil
	}
	text, err := yaml.Marshal(job)
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if m.o.status == "-" {
		_, err = m.o.out.Write(text)
		m.o.out.Flush()
	} else {
		err = os.WriteFile(m.o.status, text, 0o644) //nolint:gosec // a job's status is not secret
	}
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}
