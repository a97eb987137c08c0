package sim

import "testing"

// TestSeedsLossy runs jobs over the link ether and a network that loses, repeats and reorders
// packets, and some of them twice: a seed determines everything.
func TestSeedsLossy(t *testing.T) {
	kinds := map[string]func(uint64, *Trace) (LossyCoverage, error){"job": RunLossy, "again": RunLossyAgain}
	for name, run := range kinds {
		t.Run(name, func(t *testing.T) {
			if *only != 0 {
				if _, err := run(*only, nil); err != nil {
					t.Fatal(err)
				}
				return
			}
			var all LossyCoverage
			for i := range uint64(max(*seeds/8, 30)) {
				seed := *first + i
				trace := NewTrace(nil)
				c, err := run(seed, trace)
				if err != nil {
					t.Fatalf("%v\n\tgo test ./sidecar/internal/sim -run SeedsLossy/%s -sim.seed=%d", err, name, seed)
				}
				all.Broken += c.Broken
				all.Packets, all.Lost, all.Doubled, all.Delayed = all.Packets+c.Packets, all.Lost+c.Lost, all.Doubled+c.Doubled, all.Delayed+c.Delayed
				all.SentAgain, all.Repeated, all.Pulls, all.AskedAgain, all.Socket = all.SentAgain+c.SentAgain, all.Repeated+c.Repeated, all.Pulls+c.Pulls, all.AskedAgain+c.AskedAgain, all.Socket+c.Socket
				if i%10 > 0 {
					continue
				}
				again := NewTrace(nil)
				if _, err := run(seed, again); err != nil || again.Actions() != trace.Actions() {
					t.Fatalf("seed %d plays differently the second time: %016x, then %016x, %v", seed, trace.Actions(), again.Actions(), err)
				}
			}
			t.Logf("%d packets, %d lost, %d repeated and %d late ones; links have sent %d again and dropped %d; %d pulls, %d blocks asked for again; %d bytes by sockets; %d connections broken",
				all.Packets, all.Lost, all.Doubled, all.Delayed, all.SentAgain, all.Repeated, all.Pulls, all.AskedAgain, all.Socket, all.Broken)
			if min(all.Lost, all.Doubled, all.Delayed) < all.Packets/100 || min(all.SentAgain, all.Repeated, all.Pulls, all.AskedAgain, all.Socket, uint64(all.Broken)) == 0 {
				t.Error("too little for what the seeds are to show")
			}
		})
	}
}
