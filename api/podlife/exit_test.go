package podlife

import "testing"

// TestOfExit: for a rank without a launcher, the exit code shows whether a signal ended it.
func TestOfExit(t *testing.T) {
	for _, c := range []struct {
		code   int
		signal string
		want   Reason
		name   string
		text   string
	}{
		{1, "", RankExited, "", "exited with code 1"},
		{3, "", RankExited, "", "exited with code 3"},
		{126, "", RankExited, "", "exited with code 126"},
		{127, "", RankExited, "", "exited with code 127"},
		{128, "", RankExited, "", "exited with code 128"},
		{129, "", RankKilled, "SIGHUP", "was killed by SIGHUP"},
		{137, "", RankKilled, "SIGKILL", "was killed by SIGKILL"},
		{139, "", RankKilled, "SIGSEGV", "was killed by SIGSEGV"},
		{192, "", RankKilled, "SIG64", "was killed by SIG64"},
		{193, "", RankExited, "", "exited with code 193"},
		{255, "", RankExited, "", "exited with code 255"},
		{1, "SIGTERM", RankKilled, "SIGTERM", "was killed by SIGTERM"}, // the signal was reported
	} {
		want := Verdict{0, Failure{Rank: 0, Code: c.code, Signal: c.name, Reason: c.want, Text: c.text, Time: at(5)}}
		got := Blame([]Report{{Ranks: 1, Application: &Ending{Code: c.code, Signal: c.signal, Time: at(5)}}})
		if got == nil || *got != want {
			t.Errorf("code %d, signal %q: %+v, want %+v", c.code, c.signal, got, want)
		}
	}
}
