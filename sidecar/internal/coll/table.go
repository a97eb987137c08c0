package coll

import "fmt"

// Rule is a job's choice of an algorithm for some collectives of a kind.
type Rule struct {
	Kind        Kind
	Ranks, Pods int   // communicators with exactly so many ranks, in exactly so many pods; 0: any number
	Bytes       int64 // collectives up to this size, which is that of shape.bytes; 0: of any size
	Algorithm   Algorithm
}

// Table has the rules of a job by kind. It does not change after NewTable.
type Table struct{ rows [len(builtin)][]row }

// NewTable returns the table of rules. The first rule that applies to a collective, and whose
// algorithm can serve it in the scratch memory that clients allocate, chooses; without one the
// choice is that of a job without rules.
func NewTable(rules []Rule) (*Table, error) {
	t := new(Table)
	for i, r := range rules {
		if int(r.Kind) >= len(t.rows) || (&shape{kind: r.Kind}).misfit(r.Algorithm) == otherKind {
			return nil, fmt.Errorf("coll: rule %d: %v cannot be done by %v", i, r.Kind, r.Algorithm)
		}
		if r.Ranks < 0 || r.Pods < 0 || r.Bytes < 0 {
			return nil, fmt.Errorf("coll: rule %d: %d ranks, %d pods, %d bytes: want no negative number", i, r.Ranks, r.Pods, r.Bytes)
		}
		t.rows[r.Kind] = append(t.rows[r.Kind], row{algorithm: r.Algorithm, bytes: r.Bytes, ranks: r.Ranks, pods: r.Pods})
	}
	return t, nil
}
