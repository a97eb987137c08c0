package pmi

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

// fence sends the bytes of a pod, and returns the bytes of all pods, or the refusal.
func fence(r *rank, ranks int, own string) (string, error) {
	if _, err := fmt.Fprintf(r.conn, "cmd=outrigger_fence ranks=%d bytes=%d\n%s", ranks, len(own), own); err != nil {
		return "", err
	}
	line := r.hear()
	var n int
	if _, err := fmt.Sscanf(line, "cmd=fence_result rc=0 bytes=%d", &n); err != nil {
		return line, err
	}
	all := make([]byte, n)
	_, err := io.ReadFull(r.in, all)
	return string(all), err
}

// TestFence checks that the bytes of both pods reach both, in the order of the pods, in
// several rounds and with any content.
func TestFence(t *testing.T) {
	addrs := serve(t)
	pods := []*rank{dial(t, addrs[0]), dial(t, addrs[1])}
	for round := range 3 {
		own := []string{fmt.Sprintf("\x00\n0 of %d", round), strings.Repeat("1", round*30000)}
		var wg sync.WaitGroup
		for pod, c := range pods {
			wg.Go(func() {
				if all, err := fence(c, 2-pod, own[pod]); err != nil || all != own[0]+own[1] {
					t.Errorf("pod %d, round %d: %d bytes, %v", pod, round, len(all), err)
				}
			})
		}
		wg.Wait()
	}
}

// TestFenceRefused checks that too many bytes, or a fence without all ranks of the pod, are
// refused.
func TestFenceRefused(t *testing.T) {
	addrs := serve(t)
	for what, line := range map[string]string{
		"too long":      fmt.Sprintf("cmd=outrigger_fence ranks=2 bytes=%d", 2*fenceRankBytes+1),
		"no length":     "cmd=outrigger_fence ranks=2",
		"a rank of two": "cmd=outrigger_fence ranks=1 bytes=0",
	} {
		r := dial(t, addrs[0])
		r.send(line)
		if answer := r.hear(); answer != "" {
			t.Errorf("%s: %q", what, answer)
		}
	}
}

// TestFencesHaveConnectionsOfTheirOwn checks that the next fence may begin before the
// connection of the previous one has ended.
func TestFencesHaveConnectionsOfTheirOwn(t *testing.T) {
	addrs := serve(t)
	for round := range 3 * fencesMax {
		first := dial(t, addrs[0])
		done := make(chan error, 1)
		go func() {
			_, err := fence(first, 2, fmt.Sprint(round))
			done <- err
		}()
		all, err := fence(dial(t, addrs[1]), 1, "y") // and both stay open
		if want := fmt.Sprint(round) + "y"; all != want || err != nil {
			t.Fatalf("round %d: %q, %v, want %q", round, all, err, want)
		}
		if err := <-done; err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// TestFenceAndBarrier checks that pods whose ranks meet by different protocols do not take
// each other's pieces for their own.
func TestFenceAndBarrier(t *testing.T) {
	addrs := serve(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if all, err := fence(dial(t, addrs[0]), 2, "x"); err == nil || !strings.Contains(all, "pod_1_did_not_answer_by_PMIx,_as_this_pod_asks,_but_by_PMI:") {
			t.Errorf("%q, %v", all, err)
		}
	}()
	r := join(t, addrs[1], 2)
	r.send("cmd=barrier_in")
	if line := r.hear(); line != "" {
		t.Errorf("the barrier was passed: %q", line)
	}
	<-done
}

// TestJob checks the answer to a launcher that asks for the job's layout.
func TestJob(t *testing.T) {
	dial(t, serve(t)[1]).ask("cmd=outrigger_job", "cmd=outrigger_job rc=0 name=kvs_test pod=1 machines=0 layout=2,1")
}

// TestPodsThatAreUnlike checks that the error names what the other pod did, or did not do.
func TestPodsThatAreUnlike(t *testing.T) {
	for want, c := range map[string]struct {
		kind  byte
		piece string
	}{
		"pod 3 did not answer: look":                {pieceFence, ""},
		"pod 3 did not answer by PMIx, as this pod": {pieceFence, "k"},
		"pod 3 asks by PMIx, and the ranks of this": {pieceKeys, "f"},
		"pod 3 answered with a piece of kind 'z'":   {pieceKeys, "z"},
	} {
		if err := unlike(3, c.kind, []byte(c.piece)); !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
