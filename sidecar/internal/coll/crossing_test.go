package coll

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// crossing counts what the plans of a collective send from one pod to another.
type crossing struct {
	out, in  int64 // most bytes that leave a pod, and that arrive in one
	messages int   // most messages that leave a pod
	rounds   int   // rounds with a message between pods
}

func crossings(t *testing.T, p Params, pods []int32) (c crossing) {
	t.Helper()
	layout, err := NewLayout(pods)
	if err != nil {
		t.Fatal(err)
	}
	p.Size, p.Layout = len(pods), layout
	out, in, messages := make([]int64, layout.pods()), make([]int64, layout.pods()), make([]int, layout.pods())
	var steps []Step
	var rounds []bool
	for p.Rank = range pods {
		l, err := NewPlan(p)
		if err != nil {
			t.Fatal(err)
		}
		rounds = append(rounds, make([]bool, l.Rounds()-len(rounds))...)
		for i := range l.Rounds() {
			steps = l.Round(i, steps[:0])
			for _, s := range steps {
				from, to := layout.pod[p.Rank], layout.pod[max(s.Peer, 0)]
				if s.Op != Send || from == to {
					continue
				}
				out[from] += s.Len
				in[to] += s.Len
				messages[from]++
				rounds[s.Tag] = true // the round in which its receiver waits for it
			}
		}
	}
	for _, crossed := range rounds {
		if crossed {
			c.rounds++
		}
	}
	c.out, c.in, c.messages = slices.Max(out), slices.Max(in), slices.Max(messages)
	return c
}

// jobs are communicators of several pods with as many ranks in each.
var jobs = []struct{ pods, per int }{{16, 64}, {7, 5}, {2, 3}, {2, 2}, {1024, 1}}

// orders are the pods of the ranks of a job.
var orders = map[string]func(pods, per int) []int32{
	"pod by pod": func(pods, per int) []int32 {
		return podsOf(pods*per, func(r int) int { return r / per })
	},
	"in turn": func(pods, per int) []int32 {
		return podsOf(pods*per, func(r int) int { return r % pods })
	},
	"random": func(pods, per int) []int32 {
		order := rand.New(rand.NewPCG(uint64(pods), uint64(per))).Perm(pods * per)
		return podsOf(pods*per, func(r int) int { return order[r] % pods })
	},
}

func podsOf(ranks int, of func(rank int) int) []int32 {
	pods := make([]int32, ranks)
	for r := range pods {
		pods[r] = int32(of(r))
	}
	return pods
}

// everyJob runs f for each of jobs and for each root that is sampled.
func everyJob(t *testing.T, f func(t *testing.T, pods []int32, p Params)) {
	t.Helper()
	for _, c := range jobs {
		for name, order := range orders {
			if c.per == 1 && name != "pod by pod" {
				continue // the same
			}
			pods := order(c.pods, c.per)
			for _, kind := range []Kind{Barrier, Bcast, Reduce, Allreduce} {
				for _, root := range sampledRoots(kind, len(pods)) {
					t.Run(fmt.Sprintf("%dx%d/%s/%v/%d", c.pods, c.per, name, kind, root), func(t *testing.T) {
						f(t, pods, Params{Kind: kind, Root: root, Elem: 8, Commutative: true})
					})
				}
			}
		}
	}
}

func sampledRoots(k Kind, size int) []int {
	if !k.Rooted() {
		return []int{0}
	}
	return slices.Compact([]int{0, 1, size / 2, size - 1})
}

// near reports whether a count is at most a tenth above the least possible one.
func near(t *testing.T, what string, got, least float64) {
	t.Helper()
	if t.Logf("%s: %.2f times as many as have to", what, got/least); got/least > 1.1 {
		t.Errorf("%s: %.0f, which is %.2f times the least possible %.0f; want at most 1.1", what, got, got/least, least)
	}
}

// TestLongBetweenPods checks the bytes of long vectors that leave a pod, and that arrive in one. They
// have to be 2N(P-1)/P for an allreduce of N bytes in P pods (Patarasuk and Yuan 2009), and N for a
// bcast and a reduce.
func TestLongBetweenPods(t *testing.T) {
	everyJob(t, func(t *testing.T, pods []int32, p Params) {
		if p.Kind == Barrier {
			return
		}
		for n := 64 << 10; n <= 256<<20; n *= 16 {
			p.Count = n / p.Elem
			c, least := crossings(t, p, pods), float64(n)
			if p.Kind == Allreduce {
				many := float64(slices.Max(pods) + 1)
				least = 2 * float64(n) * (many - 1) / many
			}
			near(t, fmt.Sprintf("bytes of %d that leave a pod", n), float64(c.out), least)
			near(t, fmt.Sprintf("bytes of %d that arrive in a pod", n), float64(c.in), least)
		}
	})
}

// TestShortBetweenPods checks the rounds with messages between pods, and the messages that leave a
// pod, of short vectors: the binary logarithm of the number of pods.
func TestShortBetweenPods(t *testing.T) {
	everyJob(t, func(t *testing.T, pods []int32, p Params) {
		least := float64(levels(int(slices.Max(pods)) + 1))
		for n := p.Elem; n <= 8<<10; n *= 8 {
			if p.Count = n / p.Elem; p.Kind == Barrier {
				n, p.Count = 8<<10, 0
			}
			c := crossings(t, p, pods)
			near(t, fmt.Sprintf("rounds of %d bytes", n), float64(c.rounds), least)
			near(t, fmt.Sprintf("messages of %d bytes", n), float64(c.messages), least)
		}
	})
}

// TestAllgatherBetweenPods checks that an allgather whose ranks are pod by pod sends no more bytes
// from any pod than it has to, the vector without the blocks of one pod, and has few rounds.
func TestAllgatherBetweenPods(t *testing.T) {
	for _, c := range []struct{ pods, per, rounds int }{{16, 64, 1 + 4 + 6}, {7, 5, 1 + 6 + 3}, {2, 3, 1 + 1 + 2}} {
		pods := orders["pod by pod"](c.pods, c.per)
		for _, block := range []int{8, 1 << 10, 32 << 10} {
			p := Params{Kind: Allgather, Count: block, Elem: 1}
			most, least := crossings(t, p, pods).out, int64(block)*int64(len(pods)-c.per)
			if most > least {
				t.Errorf("%d pods of %d ranks, blocks of %d bytes: %d bytes leave a pod, want %d", c.pods, c.per, block, most, least)
			}
			p.Size, p.Pods = len(pods), pods
			l, err := NewPlan(p)
			if err != nil || l.Rounds() != c.rounds || l.Scratch() != 0 {
				t.Errorf("%d pods of %d ranks, blocks of %d bytes: %d rounds, %d bytes of scratch, %v; want %d rounds and none", c.pods, c.per, block, l.Rounds(), l.Scratch(), err, c.rounds)
			}
		}
	}
}

// TestRingOfPods runs a ring in the order of pods, for ranks that are in any order.
func TestRingOfPods(t *testing.T) {
	for name, pod := range layouts {
		t.Run(name, func(t *testing.T) {
			for _, size := range sizes[1:] {
				pods := make([]int32, size)
				for i := range pods {
					pods[i] = pod(i, size)
				}
				everyCount(t, Params{Kind: Allreduce, Algorithm: Ring, Size: size, Pods: pods})
			}
		})
	}
}

// TestBlocksBetweenPods checks that the bytes that arrive in the root's pod of a gather, and leave
// that of a scatter, are at most a tenth more than the blocks of the other pods, for ranks that are
// pod by pod, and that an alltoall of blocks which are sent one by one sends no other bytes. In
// small jobs the tree of some roots takes a block of the root's pod through another pod, because the
// contract divides scratch memory by numbers that start at the root: 2x2 has 1.5 times the bytes.
func TestBlocksBetweenPods(t *testing.T) {
	for _, c := range jobs[:2] {
		pods := orders["pod by pod"](c.pods, c.per)
		for _, kind := range []Kind{Gather, Scatter, Alltoall} {
			for _, block := range []int{8, 256, 4096, rootedShortBytes + 1} {
				if kind == Alltoall && block <= alltoallShortBytes {
					continue // TestAlltoallBetweenPods
				}
				for _, root := range sampledRoots(kind, len(pods)) {
					got := crossings(t, Params{Kind: kind, Root: root, Count: block, Elem: 1}, pods)
					least := block * (len(pods) - c.per)
					what := fmt.Sprintf("%dx%d/%v/%d/%d: bytes", c.pods, c.per, kind, root, block)
					switch kind {
					case Gather:
						near(t, what, float64(got.in), float64(least))
					case Scatter:
						near(t, what, float64(got.out), float64(least))
					default:
						near(t, what, float64(got.out), float64(least*c.per))
					}
				}
			}
		}
	}
}

// TestRootedBetweenPods records the messages and bytes that leave the root's pod in a scatter of
// 8-byte blocks, and the most that leave another pod in the gather, which takes the same way back.
func TestRootedBetweenPods(t *testing.T) {
	got := ""
	for _, c := range jobs[:3] {
		for _, name := range []string{"pod by pod", "in turn"} {
			pods := orders[name](c.pods, c.per)
			p := Params{Kind: Scatter, Count: 8, Elem: 1}
			down := crossings(t, p, pods)
			p.Kind = Gather
			up := crossings(t, p, pods)
			got += fmt.Sprintf("%dx%d %s: scatter %d messages, %d bytes; gather %d messages, %d bytes\n",
				c.pods, c.per, name, down.messages, down.out, up.messages, up.out)
		}
	}
	want := `16x64 pod by pod: scatter 4 messages, 7680 bytes; gather 1 messages, 4096 bytes
16x64 in turn: scatter 256 messages, 7680 bytes; gather 64 messages, 4096 bytes
7x5 pod by pod: scatter 5 messages, 240 bytes; gather 3 messages, 136 bytes
7x5 in turn: scatter 9 messages, 304 bytes; gather 5 messages, 176 bytes
2x3 pod by pod: scatter 2 messages, 24 bytes; gather 2 messages, 24 bytes
2x3 in turn: scatter 3 messages, 24 bytes; gather 3 messages, 24 bytes
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
