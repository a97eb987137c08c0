package podlife

import "fmt"

// RankRange names consecutive ranks for a person: rank 2, or ranks 2-3.
func RankRange(first, last int) string {
	if first == last {
		return fmt.Sprintf("rank %d", first)
	}
	return fmt.Sprintf("ranks %d-%d", first, last)
}
