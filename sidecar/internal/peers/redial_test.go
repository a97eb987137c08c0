package peers

import (
	"errors"
	"testing"
	"time"
)

func TestFailureLog(t *testing.T) {
	begun := time.Unix(0, 0)
	n := failureLog{begun: begun}
	for _, c := range []struct {
		at   time.Duration
		text string
		want bool
	}{
		{0, "lookup peer on 10.0.0.1:53: no such host", true},
		{time.Second, "lookup peer on 10.0.0.1:53: no such host", false},
		{2 * time.Second, "read udp 10.0.0.9:1234->10.0.0.1:53: i/o timeout", true},
		{3 * time.Second, "read udp 10.0.0.9:5678->10.0.0.1:53: i/o timeout", false},
		{32 * time.Second, "read udp 10.0.0.9:9999->10.0.0.1:53: i/o timeout", true},
		{33 * time.Second, "connection refused", true},
		{34 * time.Second, "connection refused", false},
		{70 * time.Second, "connection refused", true},
	} {
		if got := n.shouldLog(errors.New(c.text), begun.Add(c.at)); got != c.want {
			t.Errorf("after %v, %q: logged %v, want %v", c.at, c.text, got, c.want)
		}
	}
}

// TestNameThatDoesNotResolve checks that an unknown name is treated like a peer that has
// not started.
func TestNameThatDoesNotResolve(t *testing.T) {
	n := newJob(t, "j", time.Hour).nodes(2, []int{0}, func(c *Config) { c.Addresses[1] = "pod-1.outrigger.invalid:7077" })[0]
	n.Connect(1)
	wait(t, "a log line about it", func() bool { return n.log.has("pod-1.outrigger.invalid") })
	time.Sleep(3 * backoffFirst) // into another attempt
	n.Cancel(1)
	wait(t, "the end of the dial", n.quiet)
	if n.count(1) != 0 {
		t.Error("connected to a peer that does not exist")
	}
}
