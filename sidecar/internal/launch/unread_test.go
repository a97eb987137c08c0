package launch

import (
	"context"
	"strings"
	"testing"
	"time"
)

// paused is a reader that takes nothing until it is let go.
type paused struct {
	output
	goOn chan struct{}
}

func (p *paused) Write(b []byte) (int, error) {
	<-p.goOn
	return p.output.Write(b)
}

// flood prints three megabytes, which no pipe holds.
const flood = `yes "a line that nobody reads" | head -c 3000000 & `

// TestEndWaitsForNoReader: however a pod ends, nobody has to read its output.
func TestEndWaitsForNoReader(t *testing.T) {
	for what, c := range map[string]struct {
		script string
		cancel bool
		want   string
		code   int
	}{
		"exit":   {flood + `[ $OUTRIGGER_RANK = 5 ] && { sleep 0.2; exit 3; }; exec sleep 1000`, false, "exited with code 3", 3},
		"signal": {flood + `[ $OUTRIGGER_RANK = 5 ] && { sleep 0.2; kill -KILL $$; }; exec sleep 1000`, false, "was killed by SIGKILL", 137},
		"told":   {flood + `exec sleep 1000`, true, "was killed by SIGTERM", 143},
		"deaf":   {flood + `trap '' TERM; while :; do sleep 0.05; done`, true, "was killed by SIGKILL", 137},
		// The ranks wait in their own writes.
		"in a write":          {`[ $OUTRIGGER_RANK = 5 ] && { sleep 0.2; exit 4; }; exec yes "a line"`, false, "exited with code 4", 4},
		"well, but told then": {`yes "a line that nobody reads" | head -c 100000`, true, "", 0},
	} {
		t.Run(what, func(t *testing.T) {
			r := prepare(t, 5, c.script)
			reader := &paused{goOn: make(chan struct{})}
			r.Out = reader
			r.Grace = 300 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.cancel {
				time.AfterFunc(300*time.Millisecond, func() {
					for c.code == 0 && r.count("exited") < 2 { // they end well, when a busy machine lets them
						time.Sleep(time.Millisecond)
					}
					cancel()
				})
			}
			e := r.run(ctx) // finds who is left
			switch {
			case c.code == 0 && e != nil:
				t.Errorf("failed: %s", e.Text())
			case c.code != 0 && (e == nil || e.Code != c.code || e.Text() != c.want):
				t.Errorf("%+v, want code %d: %s", e, c.code, c.want)
			}
			if !strings.Contains(r.errOut.String(), " bytes of output are dropped: nobody reads them\n") {
				t.Errorf("nobody was told what is missing: %q", r.errOut.String())
			}
			if r.count("started") != 2 {
				t.Errorf("status lines %v", r.events())
			}
			close(reader.goOn)
		})
	}
}

// TestGoodEndWaitsForItsReader: a pod that has ended well loses nothing, however
// late its reader comes, also what is in the pipes when the last rank ends.
func TestGoodEndWaitsForItsReader(t *testing.T) {
	r := prepare(t, 5, `yes "a line" | head -n 20000`)
	reader := &paused{goOn: make(chan struct{})}
	r.Out, r.Grace = reader, time.Millisecond
	time.AfterFunc(300*time.Millisecond, func() { close(reader.goOn) })
	if e := r.run(t.Context()); e != nil {
		t.Fatal(e.Text())
	}
	if n := strings.Count(reader.String(), "a line\n"); n != 40000 {
		t.Errorf("%d lines, want 40000", n)
	}
	if r.errOut.String() != "" {
		t.Errorf("told: %s", r.errOut.String())
	}
}
