package admission

import (
	"bytes"
	"log/slog"
	"testing"
	"time"
)

// TestComplaints: a line a second, and the next one says how many there were.
func TestComplaints(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	at := time.Unix(1000, 0)
	c := &Complaints{now: func() time.Time { return at }}
	for range 25 {
		c.Log(log, "refused", "cause", "no hello")
		at = at.Add(100 * time.Millisecond)
	}
	want := `level=WARN msg=refused cause="no hello"
level=WARN msg=refused cause="no hello" others_before=9
level=WARN msg=refused cause="no hello" others_before=9
`
	if got := b.String(); got != want {
		t.Errorf("log:\n%swant:\n%s", got, want)
	}
}
