//go:build mpi

package mpi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// wantLies has the lies of clientlib/c/test/hostile.c, and a part of the reason for which the
// sidecar expels a rank that submits them.
var wantLies = map[string]string{
	"unknown-op":             "unknown operation",
	"completion-op":          "unknown operation",
	"no-op":                  "unknown operation",
	"all-flags":              "flags 0xff",
	"context":                "context 2147483648, want below 2147483648",
	"unknown-class":          "class 9 names no memory",
	"beyond-arena":           "range of 8 bytes at 16777209 is outside the 16777216 bytes of class 3",
	"beyond-pieces":          "range of 8 bytes at 16711680 is outside the allocated pieces of the arena",
	"across-pieces":          "range of 16 bytes at 16711672 is outside the allocated pieces of the arena",
	"window-of-no-piece":     "range of 4096 bytes at 16773120 is outside the allocated pieces of the arena",
	"piece-twice":            "it asks for 4096 bytes at 0 of its arena, of which 16711680 at 0 are allocated already",
	"piece-of-no-unit":       "it asks for 100 bytes at 16711680 of an arena of 16777216: want multiples of 4096 within it",
	"piece-beyond":           "it asks for 1099511627776 bytes at 16711680 of an arena of 16777216",
	"beyond-slab":            "range of 8 bytes at 1099511627776 is outside the 4194304 bytes of class 2",
	"length-wraps":           "range of 18446744073709551607 bytes at 4096 is outside",
	"address-wraps":          "range of 8192 bytes at 18446744073709547520 is outside",
	"rank-too-high":          "rank 1000 of a job of 4",
	"inline-too-long":        "inline payload of 255 bytes",
	"room-too-long":          "inline capacity of 33 bytes",
	"request-number":         "request number 65536, want below 65536",
	"number-twice":           "request number 0 is in use",
	"silent-and-large":       "only an inline send that is not synchronous may be silent",
	"stage-unasked":          "chunk of 8 bytes for request 0",
	"drop-unknown":           "no message has the handle 0x3039",
	"drop-twice":             "no message has the handle",
	"handle-of-another-time": "no message has the handle",
	"receive-unknown":        "no message has the handle 0x0",
	"reduced-unasked":        "request 4 is no collective",
	"block-too-short":        "collective block of 8 bytes, need 88",
	"block-beyond":           "range of 88 bytes at 16777208 is outside",
	"unknown-member":         "communicator 7: rank 1000 is not in the job or twice in the list",
	"member-twice":           "communicator 7: rank 1 is not in the job or twice in the list",
	"no-member":              "communicator 7: rank 1 is not in its list",
	"group-beyond":           "communicator 7: range of 8 bytes at 18446744073709547520 is outside",
	"vectors-without-end":    "collective block with 4294967295 vectors, want 0, 2 or 4",
	"result-beyond":          "range of 32768 bytes at 16777208 is outside",
	"scratch-beyond":         "range of 32768 bytes at 18446744073709547520 is outside",
	"window-beyond":          "range of 16 bytes at 16777208 is outside",
	"window-unknown":         "window 77 does not exist",
	"operand-of-no-class":    "operand of class 3",
	"now-on-a-receive":       "flags 0x4",
	"exclusive-flush":        "flags 0x8",
	"silent-and-synchronous": "only an inline send that is not synchronous may be silent",
	"chunk-of-a-probe":       "chunk for request 4, which is not staged",
	"chunk-of-a-receive":     "chunk for request 4, which waits for none",
	"chunk-beyond":           "chunks beyond the message's 100 bytes",
	"chunk-too-early":        "chunk for request 4, which waits for none",
	"chunks-without-end":     "more than 256 chunks of one request",
	"silent-without-end":     "more than 65536 silent sends are open",
	"abort-beyond":           "range of 1 bytes at 16777216 is outside",
	"head-ahead":             "the other side published an impossible index",
	"head-back":              "the other side published an impossible index",
	"word-on-socket":         "bytes on its socket after the handshake",
	"garbage":                "unknown operation",
	"entries-that-change":    "is outside the 16777216 bytes of class 3",
	"blocks-that-change":     "range of 32768 bytes at 18446744073709547520 is outside",
}

// hostileJob is a job with a hostile rank 1, and honest ranks 0 and 2 in its pod and 3 in another.
type hostileJob struct {
	*pods
	honest []*rank
	file   string // the honest ranks exit when it exists
}

func startHonest(t *testing.T) *hostileJob {
	t.Helper()
	return startHonestFrom(t, at(t, "c"))
}

// startHonestFrom starts the honest ranks with the program in dir.
func startHonestFrom(t *testing.T, dir string) *hostileJob {
	t.Helper()
	b := &hostileJob{pods: startPods(t, 3, 1)}
	b.file = b.path("enough")
	for pod, ranks := range [][]int{{0, 2}, {3}} {
		for _, n := range ranks {
			b.honest = append(b.honest, b.start(pod, n, filepath.Join(dir, "honest"), b.file))
		}
	}
	for _, r := range b.honest {
		b.await("honest rank", func() bool { return strings.Contains(r.says(), "is ready") })
	}
	return b
}

// spared checks that the honest ranks received all their messages and that the job did not fail.
func (b *hostileJob) spared() {
	b.t.Helper()
	b.write("enough", nil)
	for _, r := range b.honest {
		if code := r.end(); code != 0 || !strings.Contains(r.says(), "rounds right") {
			b.t.Errorf("an honest rank: exit code %d\n%s", code, b.words())
		}
	}
	b.clean()
}

// blame checks that the honest ranks received all their messages until they learned how rank 1
// failed. Ranks in its pod learn the reason as well, ranks in other pods only the kind of failure.
func (b *hostileJob) blame(how, why string) {
	b.t.Helper()
	for i, r := range b.honest {
		code, says := r.end(), r.says()
		good := code == 3 && strings.Contains(says, "rank 1 failed: "+how)
		if !good || i < 2 && !strings.Contains(says, why) {
			b.t.Errorf("an honest rank: exit code %d, want 3 and the report that rank 1 failed: %s, %s\n%s", code, how, why, b.words())
		}
	}
	b.clean()
}

// vanished is the failure of a rank whose process ended.
const vanished = "its process ended without closing its session"

func list(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), at(t, program)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// TestCHostileLies checks that a C client that submits invalid requests is expelled with the reason,
// that the honest ranks learn it, and that the sidecars keep nothing of it.
func TestCHostileLies(t *testing.T) {
	for _, name := range list(t, "c/hostile") {
		t.Run(name, func(t *testing.T) {
			b := startHonest(t)
			liar := b.start(0, 1, at(t, "c/hostile"), "lie", name)
			code, says := liar.end(), liar.says()
			want, known := wantLies[name]
			if code != 77 || !known || !strings.Contains(says, want) {
				t.Errorf("exit code %d, want 77 and %q\n%s", code, want, says)
			}
			b.blame("expelled: ", want)
		})
	}
}

// TestCHostileDeaths checks that at whatever step and in whatever manner a C client dies, the honest
// ranks learn which rank it was, and the sidecars keep nothing of it. A client that dies before it
// attaches, or before it has read its Welcome, does not fail the job.
func TestCHostileDeaths(t *testing.T) {
	codes := map[string]int{"kill": 128 + 9, "exit": 9, "exec": 9, "fork": 128 + 9}
	for _, step := range list(t, "c/dying") {
		manners := []string{"kill"}
		if step == "three-chunks" || step == "in-place" || step == "locked" {
			manners = []string{"kill", "exit", "exec", "fork"}
		}
		for _, manner := range manners {
			t.Run(step+"/"+manner, func(t *testing.T) {
				b := startHonest(t)
				over := b.path("over")
				r := b.start(0, 1, at(t, "c/dying"), step, manner, over)
				if code := r.end(); code != codes[manner] {
					t.Errorf("exit code %d, want %d\n%s", code, codes[manner], r.says())
				}
				if step == "at-once" || step == "greeted" { // before it has read a Welcome
					b.start(0, 1, at(t, "c/hostile"), "greet").end()
					b.spared()
				} else {
					b.blame(vanished, "")
				}
				if err := os.WriteFile(over, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestCHostileMischief checks that misuse by a C client that does not end its session has no effect
// on the honest ranks.
func TestCHostileMischief(t *testing.T) {
	b := startHonest(t)
	r := b.start(0, 1, at(t, "c/hostile"), "mischief")
	if code := r.end(); code != 0 {
		t.Errorf("exit code %d\n%s", code, r.says())
	}
	b.spared()
}

// TestCHostileGreetings checks that the answer to an invalid greeting has the reason, that
// descriptors sent with it are closed, and that the honest ranks are not affected.
func TestCHostileGreetings(t *testing.T) {
	b := startHonest(t)
	r := b.start(0, 1, at(t, "c/hostile"), "greet")
	if code := r.end(); code != 0 {
		t.Errorf("exit code %d\n%s", code, r.says())
	}
	for _, want := range []string{
		"no-magic: refused: shm: 64 bytes that are no hello message",
		"version-99: refused: the client library speaks layout version 99, this sidecar version 1",
		"no-features: refused: the client library lacks required features (has 0x0, needs 0x3)",
		"only-new-features: refused: the client library lacks required features (has 0xfffffffffffffffc, needs 0x3)",
		"rank-of-an-honest-one: refused: rank 0 is attached already",
		"rank-of-another-pod: refused: rank 3 is not hosted here",
		fmt.Sprintf("rank-of-no-pod: refused: rank %d is not hosted here", uint32(1<<32-1)),
		"arena-without-end: refused: rank 1: arena of 16777216 TiB wanted, this sidecar grants at most 16 TiB a rank",
		"too-short: refused: shm: 63 bytes that are no hello message",
		"too-long: refused: shm: 65 bytes that are no hello message",
		"one-byte: refused: shm: 1 bytes that are no hello message",
		"descriptors-and-no-magic: refused: shm: 64 bytes that are no hello message",
		"descriptors-and-a-rank-of-another-pod: refused: rank 3 is not hosted here",
		"attached-twice: refused: rank 1 is attached already",
	} {
		if !strings.Contains(r.says(), want) {
			t.Errorf("no %q\n%s", want, r.says())
		}
	}
	b.spared()
}

// TestCHostileShrink checks that a client cannot truncate the files that it shares with its sidecar.
func TestCHostileShrink(t *testing.T) {
	b := startHonest(t)
	r := b.start(0, 1, at(t, "c/hostile"), "shrink")
	if code := r.end(); code != 0 || !strings.Contains(r.says(), "the size is sealed") {
		t.Errorf("exit code %d\n%s", code, r.says())
	}
	b.blame("expelled: ", "bytes on its socket after the handshake")
}

// TestCHostileSanitized runs honest ranks under the compiler's sanitizers with a rank that misuses
// its session, one that submits an invalid request, or one that dies. These run under the
// sanitizers, too, except for lies that change memory on purpose while it is read.
func TestCHostileSanitized(t *testing.T) {
	for _, s := range []string{"address,undefined", "thread"} {
		t.Run(s, func(t *testing.T) {
			dir := sanitized(t, s)
			for name, act := range map[string][]string{
				"mischief": {filepath.Join(dir, "hostile"), "mischief"},
				"greet":    {filepath.Join(dir, "hostile"), "greet"},
				"lie":      {filepath.Join(dir, "hostile"), "lie", "beyond-arena"},
				"die":      {filepath.Join(dir, "dying"), "three-chunks", "kill", "/"},
			} {
				t.Run(name, func(t *testing.T) {
					b := startHonestFrom(t, dir)
					r := b.start(0, 1, act...)
					want := map[string]int{"lie": 77, "die": 128 + 9}[name]
					if code := r.end(); code != want {
						t.Errorf("exit code %d, want %d\n%s", code, want, r.says())
					}
					switch name {
					case "lie":
						b.blame("expelled: ", wantLies["beyond-arena"])
					case "die":
						b.blame(vanished, "")
					default:
						b.spared()
					}
				})
			}
		})
	}
}
