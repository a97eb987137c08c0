package pmi

import (
	"strings"
	"testing"
	"time"
)

const (
	saysInit     = "cmd=init pmi_version=1 pmi_subversion=1"
	saysBegun    = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
	saysFinalize = "cmd=finalize"
	saysOver     = "cmd=finalize_ack rc=0"
	saysKey      = "cmd=get kvsname=kvs_test key=card"
	saysNoKey    = "cmd=get_result rc=-1 msg=key_not_found value=unknown"
)

// TestSecondProgram checks that a rank begins its next program on the same connection when
// the other ranks of its pod have ended the previous one, and finds no key of that one.
func TestSecondProgram(t *testing.T) {
	addrs := serve(t)
	a, b := join(t, addrs[0], 0), join(t, addrs[0], 1)
	a.ask("cmd=put kvsname=kvs_test key=card value=first", "cmd=put_result rc=0 msg=success")
	a.ask(saysFinalize, saysOver)
	a.send(saysInit) // answered when rank 1 has ended its program
	for range 500 {  // an early answer would arrive meanwhile
		b.ask(saysKey, "cmd=get_result rc=0 msg=success value=first")
	}
	b.ask(saysFinalize, saysOver)
	if got := a.hear(); got != saysBegun {
		t.Fatalf("%q, want %q", got, saysBegun)
	}
	a.ask(saysKey, saysNoKey)
	a.ask("cmd=get kvsname=kvs_test key=PMI_process_mapping", "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,1))")
	a.ask("cmd=put kvsname=kvs_test key=card value=second", "cmd=put_result rc=0 msg=success")
	b.ask(saysInit, saysBegun)
	b.ask(saysKey, "cmd=get_result rc=0 msg=success value=second")
}

// TestSecondProgramConnectsAgain checks that a rank's next program may use a connection of
// its own, before the end of the previous one is noticed, or after a program that has ended
// without finalize.
func TestSecondProgramConnectsAgain(t *testing.T) {
	addrs := serve(t)
	a, b := join(t, addrs[0], 0), join(t, addrs[0], 1)
	a.ask("cmd=put kvsname=kvs_test key=card value=first", "cmd=put_result rc=0 msg=success")
	a.ask(saysFinalize, saysOver)
	_ = b.conn.Close()
	join(t, addrs[0], 0).ask(saysKey, saysNoKey)
}

// TestFewerPrograms checks that the job fails because of a rank that has ended if another
// rank of its pod, or of another one, begins a program that the rank has not run, and that
// the launcher kills that other rank.
func TestFewerPrograms(t *testing.T) {
	for what, c := range map[string]struct {
		begins int // rank that begins another program
		end    func(a []*rank, launcher *rank)
	}{
		"in its pod":         {0, func(a []*rank, _ *rank) { a[0].send(saysInit) }},
		"in its pod by PMIx": {0, func(_ []*rank, launcher *rank) { launcher.ask("cmd=outrigger_over rank=1 missed=1", "cmd=over rc=0") }},
		"elsewhere": {2, func(a []*rank, _ *rank) {
			a[2].ask(saysInit, saysBegun)
			a[2].send("cmd=barrier_in")
		}},
	} {
		t.Run(what, func(t *testing.T) {
			named := make(chan int, 4)
			addrs := serve(t, func(c *Config) { c.Over = func(rank int) { named <- rank } })
			pod := c.begins / 2
			watcher, launcher := dial(t, addrs[pod]), dial(t, addrs[0])
			watcher.send("cmd=outrigger_aborts")
			all := []*rank{join(t, addrs[0], 0), join(t, addrs[0], 1), join(t, addrs[1], 2)}
			for _, r := range all {
				r.ask(saysFinalize, saysOver)
			}
			launcher.ask("cmd=outrigger_over rank=1 missed=0", "cmd=over rc=0")
			c.end(all, launcher)
			select {
			case rank := <-named:
				if rank != 1 {
					t.Errorf("the job fails for rank %d", rank)
				}
			case <-time.After(timeout):
				t.Fatal("the others wait")
			}
			if got, want := watcher.hear(), "cmd=aborts rank="+string('0'+rune(c.begins))+" code=1"; got != want {
				t.Errorf("the launcher hears %q, want %q", got, want)
			}
		})
	}
}

// TestAsManyPrograms checks that no error is reported if all ranks end after the same
// number of programs.
func TestAsManyPrograms(t *testing.T) {
	named := make(chan int, 4)
	addrs := serve(t, func(c *Config) { c.Over = func(rank int) { named <- rank } })
	all := []*rank{join(t, addrs[0], 0), join(t, addrs[0], 1), join(t, addrs[1], 2)}
	for range 3 {
		for _, r := range all {
			r.ask(saysFinalize, saysOver)
		}
		for _, r := range all {
			r.ask(saysInit, saysBegun)
		}
	}
	for i, r := range all {
		r.ask(saysFinalize, saysOver)
		launcher := dial(t, addrs[i/2])
		launcher.ask("cmd=outrigger_over rank="+string('0'+rune(i))+" missed=0", "cmd=over rc=0")
	}
	select {
	case rank := <-named:
		t.Errorf("the job fails for rank %d", rank)
	default:
	}
}

// TestOverRefused checks that ranks of other pods, and pieces with such ranks, are refused.
func TestOverRefused(t *testing.T) {
	addrs := serve(t)
	r := dial(t, addrs[0])
	r.send("cmd=outrigger_over rank=2 missed=0")
	if answer := r.hear(); answer != "" {
		t.Errorf("%q", answer)
	}
	s := New(Config{Layout: []int{2, 1}})
	for _, piece := range []string{"e", "e2", "e-1", "ex"} {
		if err := s.missing(s.ctx, [][]byte{[]byte(piece), []byte("k")}); err == nil || !strings.Contains(err.Error(), "pod 0 names a rank") {
			t.Errorf("%q: %v", piece, err)
		}
	}
}
