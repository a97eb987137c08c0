package why

import "fmt"

// behindLeast is the minimum number of waiting ranks for a line about the rank that they wait
// for. Fewer ranks can be followed line by line.
const behindLeast = 8

// behindMost bounds the lines about such ranks.
const behindMost = 4

// behind reports a rank for which many ranks wait, most of them indirectly, through ranks that
// wait themselves: in a job of many ranks, the rounds of a collective hide which rank has not
// arrived. Rings, and ranks that have left or are stopped, are reported by other functions.
func behind(ranks []Rank) (lines []string) {
	at := make(map[int]*Rank, len(ranks))
	for i := range ranks {
		at[ranks[i].Rank] = &ranks[i]
	}
	ends := make(map[int]int, len(ranks)) // rank -> last rank of its chain; Any: there is none
	for i := range ranks {
		var path []int
		end := ranks[i].Rank
		for {
			if known, is := ends[end]; is {
				end = known
				break
			}
			ends[end] = Any // Any marks a rank of the present chain: a chain that returns to this rank is a ring
			path = append(path, end)
			x := at[end]
			if x == nil {
				end = Any
				break
			}
			next := x.next(at)
			if next == Any {
				break
			}
			end = next
		}
		for _, r := range path {
			ends[r] = end
		}
	}
	count, direct := map[int]int{}, map[int]int{}
	for i := range ranks {
		r := &ranks[i]
		if end := ends[r.Rank]; end != Any && end != r.Rank {
			count[end]++
			if r.next(at) == end { // a sidecar may report a rank twice
				direct[end]++
			}
		}
	}
	for i := range ranks {
		r := &ranks[i]
		n := count[r.Rank]
		if n < behindLeast || direct[r.Rank] == n || r.State != "" || r.Stopped != 0 {
			continue
		}
		text := "waits for no message: its program computes, or waits for something else"
		if len(r.Waits) > 0 {
			text = "waits in " + r.Waits[0].text()
		}
		if len(lines) == behindMost {
			return append(lines, "and so for further ones")
		}
		lines = append(lines, fmt.Sprintf("%d ranks wait for rank %d, or for one that waits for it; it %s", n, r.Rank, text))
	}
	return lines
}
