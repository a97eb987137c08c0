package e2e

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSidecarQuits: SIGQUIT ends a sidecar as SIGTERM does, and prints no goroutines.
func TestSidecarQuits(t *testing.T) {
	h := prepareHand(t, 1)
	h.writeDocument()
	p := h.pod(0)
	sidecar := p.startSidecar()
	sidecar.says("ready")
	sidecar.signal(unix.SIGQUIT)
	sidecar.wait(0)
	if out := sidecar.out.String(); strings.Contains(out, "goroutine ") {
		t.Error(out)
	}
}
