package rdmavm

import (
	"bytes"
	"testing"
)

func TestConsoleTellsOfAStuckProcessor(t *testing.T) {
	for _, c := range []struct {
		says []string
		want int
	}{
		{[]string{"init up\n", "[ 52.5] watchdog: BUG: soft lockup - CPU#0 stuck for 48s! [verbs.test:114]\n"}, 0},
		{[]string{"[ 80.5] watchdog: BUG: soft lock", "up - CPU#0 stuck for 75s! [verbs.test:114]", "\nmore\n"}, 1},
		{[]string{"a\n[ 80.5] watchdog: BUG: soft lockup - CPU#1 stuck for 104s! [x:1]\nb"}, 1},
		{[]string{"soft lockup - CPU#1 stuck for 104s!"}, 0}, // the line has not ended
	} {
		var out, want bytes.Buffer
		got := 0
		w := &console{to: &out, stuck: func() { got++ }}
		for _, s := range c.says {
			want.WriteString(s)
			if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
				t.Errorf("Write = %d, %v", n, err)
			}
		}
		if got != c.want || out.String() != want.String() {
			t.Errorf("%q: told %d times, want %d; passed on %q", c.says, got, c.want, out.String())
		}
	}
}
