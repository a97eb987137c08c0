package peers

import (
	"errors"
	"net"
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

// TestSilenceBound checks how long a peer may be silent: Early before the first connection, and
// Hung, which is at least Silence, later.
func TestSilenceBound(t *testing.T) {
	const silence, early, hung = time.Second, time.Minute, time.Hour
	n := newJob(t, "j", time.Hour).nodes(2, []int{0}, func(c *Config) { c.Silence, c.Early, c.Hung = silence, early, hung })[0]
	if d := n.silence(1); d != early {
		t.Errorf("before the first connection: %v, want %v", d, early)
	}
	n.Mesh.mu.Lock()
	n.incarnations[1] = 7
	n.Mesh.mu.Unlock()
	if d := n.silence(1); d != hung {
		t.Errorf("after the first connection: %v, want %v", d, hung)
	}
	n = newJob(t, "j", time.Hour).nodes(2, []int{0}, func(c *Config) { c.Silence = silence })[0]
	if n.cfg.Hung != silence || n.cfg.Early != silence {
		t.Errorf("by default %v and %v, want %v", n.cfg.Hung, n.cfg.Early, silence)
	}
}

// TestAnswers checks that a machine answers while it accepts connections that its process does not
// serve, and not if nothing listens there.
func TestAnswers(t *testing.T) {
	n := newJob(t, "j", time.Hour).nodes(2, []int{0}, hangs)[0]
	if n.Answers(1) {
		t.Error("a peer that was not dialled answers")
	}
	n.Connect(1)
	wait(t, "a refused attempt", func() bool { return n.log.has("connection refused") }) // nothing listens
	if n.Answers(1) {
		t.Error("a machine that refuses connections answers")
	}
	hung, err := net.Listen("tcp", n.cfg.Addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hung.Close() }() // the kernel accepts, and the peer does not
	wait(t, "the machine to answer", func() bool { return n.Answers(1) })
	n.Cancel(1)
	if n.Answers(1) {
		t.Error("a peer that is not dialled any more answers")
	}
	wait(t, "the end of the dial", n.quiet)
}

// TestOthersDoNotAnswer checks that a peer does not answer if another program has its address: one that
// ends connections, one of another protocol, and a sidecar of another job.
func TestOthersDoNotAnswer(t *testing.T) {
	for name, answer := range map[string]string{"ends connections": "", "another protocol": "HTTP/1.1 400 Bad Request\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			n := newJob(t, "j", time.Hour).nodes(2, []int{0}, hangs)[0]
			l, err := net.Listen("tcp", n.cfg.Addresses[1])
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }() // the test ends
			go func() {
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					_, _ = c.Write([]byte(answer))
					_ = c.Close()
				}
			}()
			notAnswering(t, n, "no sidecar answers there")
		})
	}
	t.Run("another job", func(t *testing.T) {
		n := newJob(t, "j", time.Hour).nodes(2, []int{0}, hangs)[0]
		other := newJob(t, "k", time.Hour).nodes(2, []int{1})[0]
		n.cfg.Addresses[1] = other.listener.Addr().String()
		notAnswering(t, n, "not a sidecar of this job")
	})
}

// notAnswering has n dial its peer 1, whose error is logged, and waits until the peer does not answer.
func notAnswering(t *testing.T, n *node, cause string) {
	t.Helper()
	n.Connect(1)
	wait(t, "an attempt that fails", func() bool { return n.log.has(cause) })
	wait(t, "the peer not to answer", func() bool { return !n.Answers(1) })
	n.Cancel(1)
	wait(t, "the end of the dial", n.quiet)
}
