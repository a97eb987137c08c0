package launch

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// paused is a reader that reads nothing until it is released.
type paused struct {
	output
	goOn chan struct{}
}

func (p *paused) Write(b []byte) (int, error) {
	<-p.goOn
	return p.output.Write(b)
}

// flood prints three megabytes, more than a pipe holds.
const flood = `yes "a line that is not read" | head -c 3000000 & `

// TestEndWaitsForNoReader checks that the end of a pod does not depend on readers of its
// output.
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
		// The ranks are blocked in their own writes.
		"in a write":          {`[ $OUTRIGGER_RANK = 5 ] && { sleep 0.2; exit 4; }; exec yes "a line"`, false, "exited with code 4", 4},
		"well, but told then": {`yes "a line that is not read" | head -c 100000`, true, "", 0},
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
					for c.code == 0 && r.count("exited") < 2 { // they end with code 0, when a busy machine lets them
						time.Sleep(time.Millisecond)
					}
					cancel()
				})
			}
			e := r.run(ctx) // checks that no process is left
			switch {
			case c.code == 0 && e != nil:
				t.Errorf("failed: %s", e.Text())
			case c.code != 0 && (e == nil || e.Code != c.code || e.Text() != c.want):
				t.Errorf("%+v, want code %d: %s", e, c.code, c.want)
			}
			if !strings.Contains(r.errOut.String(), " bytes of output are dropped: no process reads them\n") {
				t.Errorf("no message about the missing output: %q", r.errOut.String())
			}
			if r.count("started") != 2 {
				t.Errorf("status lines %v", r.events())
			}
			close(reader.goOn)
		})
	}
}

// TestGoodEndWaitsForItsReader checks that a pod that has ended with code 0 loses no
// output, however late its reader comes, also none that is in the pipes when the last rank
// ends.
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

// TestTexts checks that texts that ranks print by process management are printed in order
// with their ranks in front, on the output that they name; that a reader that does not read
// delays no caller; and that texts beyond the bound are reported as lost. The clue has a
// text at once.
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

// TestUnreadTexts does the same with an output that is not read.
func TestUnreadTexts(t *testing.T) {
	reader, writer := io.Pipe()
	p := newPod(Config{First: 0, Last: 0, Out: io.Discard, Err: writer})
	var printed atomic.Int32
	line := strings.Repeat("x", 1<<20-1)
	for range 3 * textsMax >> 20 {
		p.printText(0, false, line, func() { printed.Add(1) }) // returns
	}
	// All texts but those that wait, and the one that is being written.
	wait(t, "answers to the texts that are dropped", func() bool { return printed.Load() >= 2*textsMax>>20-1 })
	all := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(reader)
		all <- string(b)
	}()
	wait(t, "all answers", func() bool { return printed.Load() == 3*textsMax>>20 })
	p.printText(0, false, "the end", func() { printed.Add(1) })
	wait(t, "the last one", func() bool { return printed.Load() == 3*textsMax>>20+1 })
	p.texts.end()
	p.copies.Wait()
	p.err.Flush()
	_ = writer.Close()
	if text := <-all; !strings.Contains(text, " texts of ranks are lost, since the output was not read\n") || !strings.Contains(text, "\nthe end\n") || len(text) > 2*textsMax {
		t.Errorf("%d bytes, which end with %q", len(text), text[max(len(text)-200, 0):])
	}
}
