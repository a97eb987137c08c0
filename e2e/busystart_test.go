package e2e

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
)

// TestStartOnABusyNode: a sidecar that listens gets no CPU time for its first handshake for
// longer than a connected sidecar may be silent. When it gets CPU time, it joins the job.
func TestStartOnABusyNode(t *testing.T) {
	t.Parallel()
	const deadAfter = time.Second
	h := prepareHand(t, 1, 1)
	h.doc.Tuning.DeadAfter, h.doc.Tuning.Heartbeat = bootstrap.Duration(deadAfter), bootstrap.Duration(deadAfter/4)
	h.doc.Tuning.StartWithin = bootstrap.Duration(time.Hour) // as the operator has it
	h.start()
	wait := func(what string, n int) {
		for end := time.Now().Add(jobTime); strings.Count(h.out.String(), what) < n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("no %q in\n%s", what, h.out)
				return
			}
		}
	}
	wait("msg=ready", 2)
	busy := h.sidecars[1].Process
	if err := busy.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer func() { _ = busy.Signal(unix.SIGCONT) }() // else the end of the test would wait for it
		wait("peer not reached yet", 1)
		time.Sleep(3 * deadAfter) // twice as long as a peer that was connected may be silent
	}()
	h.launch(ring("-rounds", "3")...)
	if !strings.Contains(h.out.String(), "every byte right") {
		t.Errorf("no right result\n%s", h.out)
	}
}
