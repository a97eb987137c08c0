package jobrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// traceEvents is how many calls and messages, and how many turns, a sidecar keeps
// for a timeline: 16 MiB.
const traceEvents = 1 << 17

// checkTrace fails if the timeline could not be written: that is said before a
// job that may run for hours, not after it.
func (s *Spec) checkTrace() error {
	if s.Trace == "" {
		return nil
	}
	is, err := os.Stat(s.Trace)
	if err == nil && !is.Mode().IsRegular() && !is.IsDir() {
		return nil // opening a pipe would wait for its reader
	}
	f, openErr := os.OpenFile(s.Trace, os.O_WRONLY|os.O_CREATE, 0o644) //nolint:gosec // others may look at it
	if openErr != nil {
		return fmt.Errorf("trace: %w", openErr)
	}
	if errors.Is(err, os.ErrNotExist) {
		_ = os.Remove(s.Trace) // an empty file would be no trace, if the job cannot be started
	}
	return f.Close()
}

// saveTrace writes the job's timeline, if one is asked for, with the parts of the
// sidecars that answer: those of a job that failed may have ended.
func (j *Job) saveTrace(ctx context.Context) error {
	if j.spec.Trace == "" {
		return nil
	}
	parts, errs := make([]*trace.File, j.spec.Pods), make([]error, j.spec.Pods)
	var wg sync.WaitGroup
	for pod, socket := range j.Metrics() {
		if j.stopped(pod) {
			errs[pod] = fmt.Errorf("pod %d: its sidecar is stopped", pod)
			continue
		}
		wg.Go(func() {
			f := new(trace.File)
			if err := fetch(ctx, socket, "/trace", f); err != nil {
				errs[pod] = fmt.Errorf("pod %d: %w", pod, err)
				return
			}
			parts[pod] = f
		})
	}
	wg.Wait()
	var there []*trace.File
	for _, f := range parts {
		if f != nil {
			there = append(there, f)
		}
	}
	if err := errors.Join(errs...); err != nil {
		j.err.Tell(fmt.Sprintf("outrigger: the trace lacks %v\n", err))
	}
	all := trace.Merge(there)
	if all.Other.Lost > 0 {
		j.err.Tell(fmt.Sprintf("outrigger: the trace has the last events only: %d older ones found no room\n", all.Other.Lost))
	}
	b, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(j.spec.Trace, b, 0o644) //nolint:gosec // others may look at it
	}
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}
