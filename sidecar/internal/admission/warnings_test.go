package admission

import (
	"bytes"
	"log/slog"
	"testing"
	"time"
)

// TestWarnings checks that there is one warning a second, with the number of refusals
// since the last one.
func TestWarnings(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	at := time.Unix(1000, 0)
	c := &Warnings{now: func() time.Time { return at }}
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
