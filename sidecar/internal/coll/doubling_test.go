package coll

import "testing"

// TestDoubling checks that in each round each number receives what another one sends to it, that
// none sends more messages in all than there are rounds, and that the last range is the whole group.
func TestDoubling(t *testing.T) {
	for n := 1; n <= 1100; n++ {
		sent, have := make([]int, n), make([][2]int, n) // have: the first number that is combined, and the end
		for number := range n {
			have[number] = [2]int{number, number + 1}
		}
		for i := range levels(n) {
			next := append([][2]int(nil), have...)
			for number := range n {
				d := doublingAt(number, n, i)
				for _, to := range d.to {
					if to < 0 {
						continue
					}
					sent[number]++
					if from := doublingAt(to, n, i).from; from != number {
						t.Fatalf("%d of %d sends to %d in round %d, which receives from %d", number, n, to, i, from)
					}
				}
				if d.from < 0 {
					continue
				}
				other := have[d.from]
				if d.lower {
					other[1], next[number][0] = other[1]-have[number][0], other[0]
				} else {
					other[0], next[number][1] = other[0]-have[number][1], other[1]
				}
				if d.lower && other[1] != 0 || !d.lower && other[0] != 0 || d.fresh != (have[number][1]-have[number][0] == 1) {
					t.Fatalf("%d of %d in round %d: %+v, with %v and %v", number, n, i, d, have[number], have[d.from])
				}
			}
			have = next
		}
		for number := range n {
			if have[number] != [2]int{0, n} || sent[number] > levels(n) {
				t.Fatalf("%d of %d combines %v, and sends %d messages in %d rounds", number, n, have[number], sent[number], levels(n))
			}
		}
	}
}
