package jobrun

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// traceEvents is how many calls and messages, and how many turns, a sidecar keeps for a
// timeline: 16 MiB.
const traceEvents = 1 << 17

// checkTrace returns an error if the timeline could not be written: a job that may run for
// hours should fail before it, not after it.
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

// saveTrace writes the job's timeline, if one is requested, from the parts of the sidecars
// that answer: those of a job that failed may have ended.
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
	var there, starts []*trace.File
	for pod, f := range parts {
		if f == nil {
			continue
		}
		there = append(there, f)
		if list := j.phases(pod, f); len(list) > 0 {
			starts = append(starts, trace.Start(pod, list))
		}
	}
	if err := errors.Join(errs...); err != nil {
		j.err.OfferReserved(fmt.Sprintf("outrigger: the trace lacks %v\n", err))
	}
	all := trace.Merge(slices.Concat(there, starts))
	all.Other.Pods = len(there)
	if all.Other.Lost > 0 {
		j.err.OfferReserved(fmt.Sprintf("outrigger: the trace has the last events only: %d older ones found no room\n", all.Other.Lost))
	}
	err := replace(j.spec.Trace, func(w io.Writer) error { return json.NewEncoder(w).Encode(all) })
	if err != nil {
		err = fmt.Errorf("the trace is not written: %w; make room, or give --trace another file", err)
		if j.failure() != nil || j.cause != nil { // the job ends with that error
			j.err.OfferReserved("outrigger: " + err.Error() + "\n")
			return nil
		}
	}
	return err
}

// phases returns the phases of a pod's start, as far as they are known; part is what its
// sidecar has recorded.
func (j *Job) phases(pod int, part *trace.File) (list []trace.Phase) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, launched := j.layout.doc.Pods[pod], j.launched[pod]
	if launched.IsZero() {
		return nil
	}
	list = append(list, trace.Phase{Name: "sidecars are started", Rank: -1, Since: j.begun, Until: launched})
	first := time.Time{}
	for rank := p.FirstRank; rank < p.FirstRank+p.Ranks; rank++ {
		started, ok := j.started[rank]
		if !ok {
			continue
		}
		if first.IsZero() || started.Before(first) {
			first = started
		}
		if call, ok := part.FirstCall(rank); ok && call.After(started) {
			list = append(list, trace.Phase{Name: "from its process to its first call", Rank: rank, Since: started, Until: call})
		}
	}
	if !first.IsZero() {
		list = append(list, trace.Phase{Name: "the launcher waits for its sidecar and prepares the ranks", Rank: -1, Since: launched, Until: first})
	}
	return list
}

// replace writes a whole file: if that fails, for example on a full disk, the previous file
// stays. A pipe or a device is written in place, and so is a file in a directory in which
// no file can be made; the latter is empty after a failure.
func replace(path string, write func(io.Writer) error) error {
	is, err := os.Stat(path)
	if err == nil && is.Mode()&os.ModeNamedPipe != 0 {
		return feed(path, readerWithin, write)
	}
	if err == nil && !is.Mode().IsRegular() {
		return overwrite(path, write)
	}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	mode := os.FileMode(0o644) // less the umask; other users may read it
	if err == nil {
		mode = is.Mode().Perm()
	}
	f, tempErr := os.OpenFile(fmt.Sprintf("%s.part%d", path, os.Getpid()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // the person's own choice
	if tempErr != nil {
		if err == nil {
			return overwrite(path, write)
		}
		return tempErr
	}
	err = errors.Join(written(f, write), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to report
	}
	return err
}

func overwrite(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0) //nolint:gosec // the person's own choice
	if err != nil {
		return err
	}
	if err = written(f, write); err != nil {
		_ = f.Truncate(0) // half a trace is useless; a device cannot be truncated
	}
	return errors.Join(err, f.Close())
}

// readerWithin is how long a pipe may have no reader, and how long the reader may take for
// pipePiece bytes.
const (
	readerWithin = 10 * time.Second
	pipePiece    = 64 << 10 // a pipe's capacity (pipe(7))
)

var errNoReader = errors.New("no process reads the pipe")

// feed writes to a named pipe, whose reader may be late or never come.
func feed(path string, within time.Duration, write func(io.Writer) error) error {
	var f *os.File
	for begun := time.Now(); f == nil; {
		var err error
		f, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		switch {
		case err == nil:
		case !errors.Is(err, unix.ENXIO):
			return err
		case time.Since(begun) > within:
			return fmt.Errorf("%s: %w", path, errNoReader)
		default:
			time.Sleep(within / 1000)
		}
	}
	return errors.Join(write(patient{f, within}), f.Close())
}

// patient writes to a pipe as long as it is read.
type patient struct {
	pipe   *os.File
	within time.Duration
}

func (p patient) Write(b []byte) (n int, err error) {
	for piece := range slices.Chunk(b, pipePiece) {
		if err := p.pipe.SetWriteDeadline(time.Now().Add(p.within)); err != nil {
			return n, err
		}
		done, err := p.pipe.Write(piece)
		n += done
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%s: %w any more", p.pipe.Name(), errNoReader)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func written(f *os.File, write func(io.Writer) error) error {
	out := bufio.NewWriter(f)
	if err := write(out); err != nil {
		return err
	}
	return out.Flush()
}
