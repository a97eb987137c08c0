package bootstrap

import (
	"slices"
	"strconv"
	"strings"
)

// CollectiveRule is a choice of an algorithm. The first rule that applies to a collective, and whose
// algorithm can serve it, is followed; without one the sidecars choose. All sidecars of a job have to
// choose alike: they do, because each reads its rules from the one document, and a program that does
// not know them refuses it (Parse).
type CollectiveRule struct {
	Collective string `json:"collective"`         // one of Collectives
	Ranks      int    `json:"ranks,omitempty"`    // communicators of exactly so many ranks; 0: of any number
	Pods       int    `json:"pods,omitempty"`     // communicators whose ranks are in exactly so many pods; 0: in any number
	MaxBytes   int64  `json:"maxBytes,omitempty"` // largest vector (bcast, reduce, allreduce), sum of all blocks (reduce-scatter), or block of a rank (the others); 0: any
	Algorithm  string `json:"algorithm"`          // one of Algorithms
}

// Bounds of Tuning.Collectives. A tuned job shape has at most 65 rules.
const (
	CollectiveRulesMax = 128
	CollectiveBytesMax = 1 << 40
)

// Collectives are those of which a rule may name the algorithm. The others have one algorithm.
var Collectives = []string{"barrier", "bcast", "reduce", "allreduce", "reduce-scatter", "gather", "scatter", "allgather", "alltoall"}

var algorithms = map[string][]string{
	"barrier":        {"dissemination", "two-level"},
	"bcast":          {"binomial", "scatter-allgather", "double-tree", "two-level"},
	"reduce":         {"binomial", "rabenseifner", "double-tree", "two-level"},
	"allreduce":      {"recursive-doubling", "rabenseifner", "ring", "two-level"},
	"reduce-scatter": {"recursive-halving", "recursive-doubling", "pairwise"},
	"gather":         {"binomial", "linear"},
	"scatter":        {"binomial", "linear"},
	"allgather":      {"ring", "recursive-doubling", "bruck", "two-level"},
	"alltoall":       {"pairwise", "bruck", "two-level"},
}

// Algorithms returns the algorithms of a collective.
func Algorithms(collective string) []string { return slices.Clone(algorithms[collective]) }

func (d *Document) validateCollectives(bad func(string, ...any) error) error {
	rules := d.Tuning.Collectives
	if len(rules) > CollectiveRulesMax {
		return bad("tuning.collectives has %d rules, want at most %d", len(rules), CollectiveRulesMax)
	}
	for i, r := range rules {
		algorithms, known := algorithms[r.Collective]
		switch {
		case !known:
			return bad("tuning.collectives[%d].collective is %q, want %s", i, r.Collective, strings.Join(Collectives, ", "))
		case !slices.Contains(algorithms, r.Algorithm):
			return bad("tuning.collectives[%d].algorithm of %s is %q, want %s", i, r.Collective, r.Algorithm, strings.Join(algorithms, ", "))
		case r.Ranks < 0 || r.Ranks > RanksMax:
			return bad("tuning.collectives[%d].ranks is %d, want 0 for any number, or 1 to %d", i, r.Ranks, RanksMax)
		case r.Pods < 0 || r.Pods > RanksMax:
			return bad("tuning.collectives[%d].pods is %d, want 0 for any number, or 1 to %d", i, r.Pods, RanksMax)
		case r.MaxBytes < 0 || r.MaxBytes > CollectiveBytesMax:
			return bad("tuning.collectives[%d].maxBytes is %d, want 0 for any size, or 1 to %d", i, r.MaxBytes, CollectiveBytesMax)
		}
		if before := LargerBefore(rules[:i], r); before >= 0 {
			return bad("tuning.collectives[%d].maxBytes of %s is %d after %s; want ascending sizes for the same collective, ranks and pods, and the rule without one last", i, r.Collective, r.MaxBytes, sizeText(rules[before].MaxBytes))
		}
	}
	return nil
}

func sizeText(n int64) string {
	if n == 0 {
		return "a rule for any size"
	}
	return strconv.FormatInt(n, 10)
}

// LargerBefore returns the index of a rule for the same communicators and for larger collectives than r,
// which follows the rules; -1: there is none.
func LargerBefore(rules []CollectiveRule, r CollectiveRule) int {
	return slices.IndexFunc(rules, func(b CollectiveRule) bool {
		same := b.Collective == r.Collective && b.Ranks == r.Ranks && b.Pods == r.Pods
		return same && r.MaxBytes != 0 && (b.MaxBytes == 0 || r.MaxBytes < b.MaxBytes)
	})
}
