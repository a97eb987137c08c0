//go:build cluster

package memory

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// TestManySendersAtTheLimit checks that 31 senders use no more than the part of the limit for eager
// messages, and that a sidecar of 160 pods has enough.
func TestManySendersAtTheLimit(t *testing.T) {
	t.Run("31", func(t *testing.T) {
		used, s := manySenders(t, 32, 3<<19)
		// Of the rest of the limit the program, its rank and its connections use some 30 MiB here.
		if may := s.Eager(32) + 48<<20; used > may {
			t.Errorf("%d bytes were used, want at most %d", used, may)
		}
	})
	t.Run("159", func(t *testing.T) { manySenders(t, 160, 1<<18) })
}

// manySenders checks that a sidecar with exactly the memory limit of the operator is not killed
// while the ranks of all other pods send to its rank at once, up to each bytes of each size in
// turn, and leave small messages in many pages until the end. All messages arrive. It returns the
// most bytes that the sidecar used, the kernel's included.
func manySenders(t *testing.T, pods, each int) (used int64, s memory.Sizes) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "outrigger-sidecar")
	if out, err := exec.Command("go", "build", "-o", program, "../../sidecar/cmd/outrigger-sidecar").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const most = 2048 // messages of a rank in each round: those without credit are announced, which has a bound of its own
	count := func(size int) int { return min(each/size, most) }
	sizes := []int{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10}
	s = memory.Sizes{Arena: 16 << 20, Slab: memory.SlabDefault, Credit: memory.CreditOf(pods), MPI: true}
	dir, err := os.MkdirTemp("", "memory-") //nolint:usetesting // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
	var addresses []string
	for pod := range pods { // another address for each: sidecars of one address count as one machine
		_, port, err := net.SplitHostPort(freePort(t))
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, fmt.Sprintf("127.1.%d.%d:%s", pod/200, pod%200+1, port))
	}
	docs := documents(t, dir, s, 1, addresses...)
	free := group(t, 16<<30)
	in := filepath.Join(free, "limited")
	if err := os.Mkdir(in, 0o755); err != nil {
		t.Fatal(err)
	}
	need := s.Need(1, pods, pods)
	limit(t, free, in, need)
	t.Cleanup(func() { removed(in) })
	sessions := make([]*outrigger.Session, pods)
	var words string
	var opened sync.WaitGroup
	for pod := range pods {
		group := free + "/open"
		if pod == 0 {
			group = in
		}
		socket, w := sidecarOf(t, pod, program, dir, group, docs[pod])
		if pod == 0 {
			words = w
		}
		opened.Go(func() {
			s, err := outrigger.Open(t.Context(), outrigger.Config{Socket: socket, Rank: pod})
			if err != nil {
				t.Errorf("rank %d: %v", pod, err)
				return
			}
			sessions[pod] = s
			t.Cleanup(func() { _ = s.Close() }) // the sidecar ends anyway
		})
	}
	if opened.Wait(); t.Failed() {
		t.FailNow()
	}
	tag := func(round, i int) int { return round<<16 | i }
	// late reports whether a message is received after all rounds: one small message of each page.
	late := func(size, i int) bool { return size <= 1<<10 && i*size%4096 == 0 }
	var senders sync.WaitGroup
	for rank := 1; rank < pods; rank++ {
		senders.Go(func() {
			c := sessions[rank].World()
			var rest []outrigger.Request
			for round, size := range sizes {
				all, err := outrigger.Alloc[byte](sessions[rank], each)
				var requests []outrigger.Request
				for i := 0; err == nil && i < count(size); i++ {
					m := all[i*size : (i+1)*size]
					m[0], m[size-1] = byte(i), byte(rank)
					var r outrigger.Request
					r, err = outrigger.Isend(c, m, 0, tag(round, i))
					requests = append(requests, r)
				}
				for i, r := range requests {
					if err == nil && late(size, i) {
						rest = append(rest, r)
					} else if err == nil {
						_, err = r.Wait(t.Context())
					}
				}
				if err != nil {
					t.Errorf("rank %d, messages of %d bytes: %v", rank, size, err)
					return
				}
			}
			for _, r := range rest {
				if _, err := r.Wait(t.Context()); err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
	receive := func(rank, round, i int) error {
		size := sizes[round]
		m := make([]byte, size)
		_, err := outrigger.Recv(t.Context(), sessions[0].World(), m, rank, tag(round, i))
		if err == nil && (m[0] != byte(i) || m[size-1] != byte(rank)) {
			err = fmt.Errorf("it has the ends %d and %d", m[0], m[size-1])
		}
		if err != nil {
			raw, _ := os.ReadFile(words) // empty if the sidecar wrote none
			return fmt.Errorf("message %d of %d bytes of rank %d: %w; the sidecar's last words: %s", i, size, rank, err, raw)
		}
		return nil
	}
	for _, last := range []bool{false, true} {
		for round, size := range sizes {
			for rank := pods - 1; rank > 0; rank-- {
				for i := count(size) - 1; i >= 0; i-- {
					if late(size, i) == last {
						if err := receive(rank, round, i); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
	}
	senders.Wait()
	used = peak(t, in)
	t.Logf("%d pods: at most %d of %d bytes were used", pods, used, need)
	return used, s
}
