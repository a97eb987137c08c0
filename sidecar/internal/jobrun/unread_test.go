package jobrun

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/outlet"
)

// paused is a reader that reads nothing until it is released.
type paused struct {
	goOn chan struct{}
	got  bytes.Buffer
}

func (p *paused) Write(b []byte) (int, error) {
	<-p.goOn
	return p.got.Write(b)
}

const flood = `yes "a line that is not read" | head -c 3000000 & `

// TestEndWaitsForNoReader checks that the end of a job does not depend on readers of its
// output, that the verdict is right, and that no process is left.
func TestEndWaitsForNoReader(t *testing.T) {
	const waits = flood + `trap 'exit 143' TERM; while :; do sleep 0.02; done`
	const rankFails = flood + `sleep 0.2; echo '{"event":"failed","rank":1,"code":42,"time":"2020-01-01T00:00:00Z"}' >&3; wait; exit 42`
	for what, c := range map[string]struct {
		sidecar, launcher string
		timeout, cancel   time.Duration
		want              string
		code              int
	}{
		"a rank fails":     {quietSidecar, rankFails, 0, 0, "rank 1 (pod 1) exited with code 42", 42},
		"timeout":          {quietSidecar, waits, 300 * time.Millisecond, 0, "not finished within 300ms", 124},
		"Ctrl-C":           {quietSidecar, waits, 0, 300 * time.Millisecond, "interrupted", 130},
		"a launcher fails": {quietSidecar, flood + `sleep 0.2; exit 5`, 0, 0, "the launcher of pod ", 1},
		"a sidecar ends":   {`sleep 0.3; exit 3`, waits, 0, 0, "ended: exit status 3", 1},
		"deaf": {
			quietSidecar, flood + `trap '' TERM; while :; do sleep 0.02; done`, 300 * time.Millisecond, 0,
			"not finished within 300ms", 124,
		},
		// All ranks have ended with code 0, but a part of their output is missing.
		"Ctrl-C then": {quietSidecar, `yes "a line that is not read" | head -c 300000`, 0, 500 * time.Millisecond, "interrupted", 130},
	} {
		t.Run(what, func(t *testing.T) {
			s := set(t, c.sidecar, c.launcher)
			reader := &paused{goOn: make(chan struct{})}
			out := outlet.New(reader)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.cancel > 0 {
				time.AfterFunc(c.cancel, cancel)
			}
			spec := &Spec{Ranks: 2, Pods: 2, Program: []string{"/bin/true"}, Timeout: c.timeout}
			var err error
			if s.job, err = Start(ctx, spec, out, &s.errOut); err != nil {
				t.Fatal(err)
			}
			err = s.job.Wait(ctx, nil)
			s.left()
			var f *Failure
			if !errors.As(err, &f) || f.Code != c.code || !strings.Contains(f.Text, c.want) {
				t.Errorf("%v, want %q and code %d", err, c.want, c.code)
			}
			if !strings.Contains(s.errOut.String(), " bytes of output are dropped: no process reads them\n") {
				t.Errorf("no message about the missing output: %q", s.errOut.String())
			}
			close(reader.goOn)
			out.ResetWait()
			out.Flush()
		})
	}
}

// TestGoodEndWaitsForItsReader checks that a late reader gets the whole output.
func TestGoodEndWaitsForItsReader(t *testing.T) {
	s := set(t, quietSidecar, `yes "a line" | head -n 20000`)
	reader := &paused{goOn: make(chan struct{})}
	time.AfterFunc(300*time.Millisecond, func() { close(reader.goOn) })
	if err := Run(t.Context(), &Spec{Ranks: 2, Pods: 2, Program: []string{"/bin/true"}}, reader, &s.errOut, nil); err != nil {
		t.Fatal(err)
	}
	s.left()
	if n := strings.Count(reader.got.String(), "a line\n"); n != 40000 {
		t.Errorf("%d lines, want 40000", n)
	}
}

// TestUnwrittenOutput checks that a job whose output could not be written has failed.
func TestUnwrittenOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }() // it accepts nothing
	s := set(t, quietSidecar, `echo "the result"`)
	if s.job, err = Start(t.Context(), &Spec{Ranks: 1, Pods: 1, Program: []string{"/bin/true"}}, full, &s.errOut); err != nil {
		t.Fatal(err)
	}
	if err = s.job.Wait(t.Context(), nil); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "output of the ranks: ") {
		t.Errorf("got %v, want that there is no room", err)
	}
	s.left()
}
