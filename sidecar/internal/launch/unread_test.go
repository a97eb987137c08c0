package launch

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
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

// TestTexts: texts that ranks print by process management are printed in order with their ranks in
// front, on the output that they name; a reader that does not read holds up no caller, and what is more
// than the bound is told as lost. The clue has a text at once.
func TestTexts(t *testing.T) {
	r := prepare(t, 5, "sleep 0.5")
	r.Prefix = true
	var printed atomic.Int32
	r.Texts = func(say func(int, bool, string, func())) {
		go func() {
			say(4, false, "first\nsecond", func() { printed.Add(1) })
			say(5, true, "third\n", func() { printed.Add(1) })
			say(99, false, "not of this pod", func() { printed.Add(1) })
		}()
	}
	if e := r.run(t.Context()); e != nil {
		t.Errorf("%+v", e)
	}
	if got := r.errOut.String(); got != "[4] first\n[4] second\n" || r.out.String() != "[5] third\n" || printed.Load() != 3 {
		t.Errorf("printed %d: %q, %q", printed.Load(), got, r.out.String())
	}
}

// TestUnreadTexts: as above, with an output that is not read.
func TestUnreadTexts(t *testing.T) {
	reader, writer := io.Pipe()
	p := newPod(Config{First: 0, Last: 0, Out: io.Discard, Err: writer})
	var printed atomic.Int32
	line := strings.Repeat("x", 1<<20-1)
	for range 3 * textsMax >> 20 {
		p.say(0, false, line, func() { printed.Add(1) }) // returns
	}
	// All but those that wait, and the one that is being written.
	wait(t, "answers to the texts that are dropped", func() bool { return printed.Load() >= 2*textsMax>>20-1 })
	all := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(reader)
		all <- string(b)
	}()
	wait(t, "all answers", func() bool { return printed.Load() == 3*textsMax>>20 })
	p.say(0, false, "the end", func() { printed.Add(1) })
	wait(t, "the last one", func() bool { return printed.Load() == 3*textsMax>>20+1 })
	p.texts.end()
	p.copies.Wait()
	p.err.Flush()
	_ = writer.Close()
	if text := <-all; !strings.Contains(text, " texts of ranks are lost, since the output was not read\n") || !strings.Contains(text, "\nthe end\n") || len(text) > 2*textsMax {
		t.Errorf("%d bytes, which end with %q", len(text), text[max(len(text)-200, 0):])
	}
}
