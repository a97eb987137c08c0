//go:build cluster

package memory

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// freePort returns an address on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it is free again
	return l.Addr().String()
}

// TestInnocentPairAtTheLimit checks that a sidecar with exactly the memory limit of the
// operator survives idle connections at all its ports, hostile clients of process management,
// and a rank of another pod that sends all of an arena that it has never written. Meanwhile
// two other ranks of the job exchange messages, which all arrive.
func TestInnocentPairAtTheLimit(t *testing.T) {
	program := filepath.Join(t.TempDir(), "outrigger-sidecar")
	if out, err := exec.Command("go", "build", "-o", program, "../../sidecar/cmd/outrigger-sidecar").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const (
		ranks  = 2 // of each pod: the first is innocent, and the second is not
		rounds = 400
	)
	s := memory.Sizes{Arena: 256 << 20, Slab: memory.SlabDefault, Credit: memory.CreditDefault, First: true, MPI: true}
	dir, err := os.MkdirTemp("", "memory-") //nolint:usetesting // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
	peers, health, metrics := []string{freePort(t), freePort(t)}, freePort(t), freePort(t)
	docs := documents(t, dir, s, ranks, peers...)
	free := group(t, 4<<30)
	in := filepath.Join(free, "limited")
	if err := os.Mkdir(in, 0o755); err != nil {
		t.Fatal(err)
	}
	need := s.Need(ranks, 2*ranks, 2)
	limit(t, free, in, need)
	t.Cleanup(func() { removed(in) })
	first, _ := sidecarOf(t, 0, program, dir, free+"/open", docs[0])
	second, words := sidecarOf(t, 1, program, dir, in, docs[1], "--health="+health, "--metrics="+metrics)
	var sessions [2 * ranks]*outrigger.Session
	var opened sync.WaitGroup
	for rank := range sessions {
		opened.Go(func() {
			socket := []string{first, second}[rank/ranks]
			s, err := outrigger.Open(t.Context(), outrigger.Config{Socket: socket, Rank: rank})
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			sessions[rank] = s
			t.Cleanup(func() { _ = s.Close() }) // the sidecar ends anyway
		})
	}
	if opened.Wait(); t.Failed() {
		t.FailNow()
	}
	over, stop := context.WithCancel(t.Context())
	var foes sync.WaitGroup
	foes.Go(func() { idle(over, peers[1], health, metrics) })
	foes.Go(func() { meetings(over, second+names.PMISuffix, ranks) })
	foes.Go(func() { untouched(over, sessions[ranks-1], 2*ranks-1) })
	foes.Go(func() { swallow(over, sessions[2*ranks-1], ranks-1) })
	err = pair(t.Context(), sessions[0], sessions[ranks], rounds)
	stop()
	foes.Wait()
	if err != nil {
		raw, _ := os.ReadFile(words) // empty if the sidecar wrote none
		t.Fatalf("the innocent pair: %v; the sidecar's last words: %s", err, raw)
	}
	t.Logf("at most %d of %d bytes were used", peak(t, in), need)
}

// limit sets the limit of a group below above, and makes the group open below above for all other
// processes, because a group with processes cannot have groups with limits below it.
func limit(t *testing.T, above, group string, bytes int64) {
	t.Helper()
	open := filepath.Join(above, "open")
	err := os.Mkdir(open, 0o755)
	t.Cleanup(func() { removed(open) })
	file := "memory.limit_in_bytes"
	if _, v2 := os.Stat(filepath.Join(above, "cgroup.subtree_control")); v2 == nil {
		file = "memory.max"
		if err == nil {
			err = os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), []byte("+memory"), 0o600)
		}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(group, file), fmt.Append(nil, bytes), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// removed removes a group when its last process has ended.
func removed(group string) {
	for range 100 {
		if os.Remove(group) == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// pair lets two ranks exchange messages of all protocols, and compares the contents.
func pair(ctx context.Context, a, b *outrigger.Session, rounds int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	fill := func(buf []uint64, round, salt int) {
		for i := range buf {
			buf[i] = uint64(round*1000003 + salt*7919 + i)
		}
	}
	side := func(s *outrigger.Session, peer, salt int) error {
		w := s.World()
		for round := range rounds {
			n := []int{1, 500, 6000, 100_000}[round%4]
			out, in, want := make([]uint64, n), make([]uint64, n), make([]uint64, n)
			fill(out, round, salt)
			fill(want, round, 1-salt)
			if _, err := outrigger.Sendrecv(ctx, w, out, peer, 1, in, peer, 1); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			for i := range in {
				if in[i] != want[i] {
					return fmt.Errorf("round %d: element %d of %d is %d, want %d", round, i, n, in[i], want[i])
				}
			}
		}
		return nil
	}
	errs := make(chan error, 2)
	go func() { errs <- side(a, b.World().Rank(), 0) }()
	go func() { errs <- side(b, a.World().Rank(), 1) }()
	err := <-errs
	if err != nil {
		cancel()
	}
	if second := <-errs; err == nil {
		err = second
	}
	return err
}

// idle opens connections to all ports, sends a few bytes, and reads nothing.
func idle(over context.Context, addresses ...string) {
	var open []net.Conn
	for i := 0; over.Err() == nil; i++ {
		var d net.Dialer
		c, err := d.DialContext(over, "tcp", addresses[i%len(addresses)])
		if err != nil {
			continue // none is let in now
		}
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = c.Write([]byte("GET /report HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("x", 16<<10))) // it may be over
		if open = append(open, c); len(open) > 3000 {
			_ = open[0].Close() // as above
			open = open[1:]
		}
	}
	for _, c := range open {
		_ = c.Close() // as above
	}
}

// meetings requests fences of all ranks and meetings of both pods in turn, each with as many bytes
// as it may have. None completes, because no other rank takes part.
func meetings(over context.Context, socket string, ranks int) {
	var open []net.Conn
	for i := 0; over.Err() == nil; i++ {
		var d net.Dialer
		c, err := d.DialContext(over, "unix", socket)
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		ask := fmt.Appendf(nil, "cmd=outrigger_fence ranks=%d bytes=%d\n", ranks, ranks<<16)
		if i%2 == 1 { // of both pods, by a name of its own
			ask = []byte("cmd=outrigger_meet\n")
			for _, n := range []int{2, 4, ranks << 16, 0, 1, i} { // pods, bytes of the name and of the piece; the pods, the name
				ask = binary.LittleEndian.AppendUint32(ask, uint32(n))
			}
		}
		_, _ = c.Write(append(ask, bytes.Repeat([]byte("x"), ranks<<16)...)) // it may be refused
		if open = append(open, c); len(open) > 256 {
			_ = open[0].Close() // it may be over
			open = open[1:]
		}
	}
	for _, c := range open {
		_ = c.Close() // as above
	}
}

// untouched repeatedly sends all of an arena that was never written.
func untouched(over context.Context, s *outrigger.Session, to int) {
	const size = 8 << 20
	var all [][]byte
	for {
		b, err := outrigger.Alloc[byte](s, size)
		if err != nil {
			break
		}
		_ = unix.Madvise(b[4096:size-4096], unix.MADV_REMOVE) // it is refused
		all = append(all, b)
	}
	for i := 0; over.Err() == nil && len(all) > 0; i++ {
		_ = outrigger.Send(over, s.World(), all[i%len(all)], to, 1) // until the end
	}
}

// swallow receives what untouched sends.
func swallow(over context.Context, s *outrigger.Session, from int) {
	b, err := outrigger.Alloc[byte](s, 8<<20)
	for err == nil && over.Err() == nil {
		_, err = outrigger.Recv(over, s.World(), b, from, 1)
	}
}
