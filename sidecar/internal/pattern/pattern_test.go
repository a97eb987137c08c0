package pattern

import "testing"

// TestTraces checks that the synthetic applications use their buffers as Tables 1 and 3 of
// paper 000 state.
func TestTraces(t *testing.T) {
	for _, x := range Traces {
		const rounds = 200_000
		uses, bytes := map[int]int{}, 0
		frequent, reused, most := 0, 0, 0
		for off, n := range x.Messages(rounds) {
			if n > SmallBytes || x.Mean == SmallBytes {
				uses[off]++
			}
			if off >= FrequentAt {
				reused++
				bytes += n
				if uses[off] == 2 {
					frequent++
				}
				most = max(most, uses[off])
			}
		}
		if part := float64(reused) / rounds; part < x.Reused-0.01 || part > x.Reused+0.01 || most != x.Uses {
			t.Errorf("%s: %v of the messages are of frequent buffers, up to %d times; want %v, %d", x.Name, part, most, x.Reused, x.Uses)
		}
		if part := float64(frequent) / float64(len(uses)); x.Frequent > 0 && (part < x.Frequent*0.8 || part > x.Frequent*1.3) {
			t.Errorf("%s: %v of the buffers are frequent, want %v", x.Name, part, x.Frequent)
		}
		if mean := bytes / reused; mean < x.Mean*8/10 || mean > x.Mean*12/10 {
			t.Errorf("%s: frequent buffers of %d bytes, want %d", x.Name, mean, x.Mean)
		}
	}
}
