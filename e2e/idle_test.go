package e2e

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
)

// TestIdleStrangers checks that hundreds of silent connections, which are open from before the
// sidecars connect until the end of the job, do not prevent a sidecar from connecting and
// reconnecting.
func TestIdleStrangers(t *testing.T) {
	t.Parallel()
	j := start(t, 4, 2, ring("-rounds", "6000", "-bytes", "20000", "-pause", "1ms")...)
	path := filepath.Join(j.dir, "bootstrap.json")
	for {
		if doc, err := bootstrap.Load(path); err == nil {
			for _, p := range doc.Pods {
				crowd(t, p.Address, 300)
			}
			break
		}
		if _, err := os.Stat(j.dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	j.waitFor(`rank 3 is process (\d+)`)
	doc, err := bootstrap.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	// Ranks print that they have started before there is a connection that could break.
	j.waitTotals("the first connection", func(c totals) bool { return c.BytesIn > 0 })
	for n := 1; n <= 3; n++ {
		crowd(t, doc.Pods[1].Address, 100)
		resp, err := j.sidecar(http.MethodPost, "/debug/break/1", "pod0")
		if err != nil {
			t.Fatalf("%v\n%s", err, j.out)
		}
		_ = resp.Body.Close() // empty
		begun := time.Now()
		j.waitTotals("the connection to be made again", func(c totals) bool { return c.Reconnects >= n })
		t.Logf("connected again after %v", time.Since(begun))
	}
	code, out := j.wait()
	if code != 0 || !strings.Contains(out, "every byte right") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// crowd holds silent connections open, and opens those again that the sidecar closes.
func crowd(t *testing.T, address string, count int) {
	t.Helper()
	for range count {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // what counts is what the job does
		go func() {
			var b [1]byte
			for _, err := c.Read(b[:]); err != nil && t.Context().Err() == nil; {
				again, dialErr := net.Dial("tcp", address)
				if dialErr != nil {
					return // the job is over
				}
				_, err = again.Read(b[:])
				_ = again.Close() // ended already
			}
		}()
	}
}
