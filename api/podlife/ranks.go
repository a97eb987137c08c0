package podlife

import "fmt"

// RankRange formats consecutive ranks for a reader: rank 2, or ranks 2-3.
func RankRange(first, last int) string {
	if first == last {
		return fmt.Sprintf("rank %d", first)
	}
	return fmt.Sprintf("ranks %d-%d", first, last)
}
