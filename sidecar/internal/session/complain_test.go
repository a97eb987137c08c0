package session

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
)

// TestConnectAndGo checks that thousands of connections that close at once do not fill the
// log, and do not hide a refusal of another kind.
func TestConnectAndGo(t *testing.T) {
	b := serve(t)
	begun := time.Now()
	for range 1000 {
		c, err := net.Dial("unixpacket", b.path)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close() // nothing was sent
	}
	b.dial(t).refused([]byte("garbage"), "7 bytes that are no hello message")
	wait(t, "the refusal in the log", func() bool { return b.log.has("7 bytes that are no hello message") })
	most := 3 + int(time.Since(begun)/admission.WarningInterval)
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	if n := strings.Count(b.log.b.String(), "level=WARN"); n < 2 || n > most {
		t.Errorf("%d lines, want 2 to %d\n%s", n, most, b.log.b.String())
	}
}
