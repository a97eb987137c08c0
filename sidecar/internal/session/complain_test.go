package session

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// TestComplaints: a line a second, and the next one says how many there were.
func TestComplaints(t *testing.T) {
	j := new(journal)
	log := slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	at := time.Unix(1000, 0)
	c := &complaints{now: func() time.Time { return at }}
	for range 25 {
		c.log(log, errors.New("no hello"))
		at = at.Add(100 * time.Millisecond)
	}
	want := `level=WARN msg="application refused" cause="no hello"
level=WARN msg="application refused" cause="no hello" others_before=9
level=WARN msg="application refused" cause="no hello" others_before=9
`
	if got := j.b.String(); got != want {
		t.Errorf("log:\n%swant:\n%s", got, want)
	}
}

// TestConnectAndGo: who connects and goes, thousands of times, does not fill the
// log, nor hides a refusal of another kind.
func TestConnectAndGo(t *testing.T) {
	b := serve(t)
	begun := time.Now()
	for range 1000 {
		c, err := net.Dial("unixpacket", b.path)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close() // nothing was said
	}
	b.dial(t).refused([]byte("garbage"), "7 bytes that are no hello message")
	wait(t, "the refusal in the log", func() bool { return b.log.has("7 bytes that are no hello message") })
	most := 3 + int(time.Since(begun)/complaintPause)
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	if n := strings.Count(b.log.b.String(), "level=WARN"); n < 2 || n > most {
		t.Errorf("%d lines, want 2 to %d\n%s", n, most, b.log.b.String())
	}
}
