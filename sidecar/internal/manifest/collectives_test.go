package manifest

import (
	"strings"
	"testing"
)

// TestReadCollectives: a fault has its line, the value found and the values meant.
func TestReadCollectives(t *testing.T) {
	const good = `apiVersion: outrigger.dev/v1alpha1
kind: FabricProfile
metadata: {name: tuned}
spec:
  collectives:
  - {collective: ReduceScatter, ranks: 4, pods: 2, maxBytes: 64, algorithm: RecursiveHalving}
  - {collective: Bcast, algorithm: TwoLevel}
`
	rules, err := ReadCollectives([]byte(good))
	if err != nil || len(rules) != 2 || rules[0].Collective != "reduce-scatter" || rules[0].Algorithm != "recursive-halving" || rules[0].Ranks != 4 || rules[0].Pods != 2 || rules[0].MaxBytes != 64 {
		t.Errorf("%+v, %v", rules, err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"Bcast, algorithm: TwoLevel", "Bcast, algorithm: Ring", `line 7: spec.collectives[1].algorithm is "Ring": algorithm of Bcast is Binomial, ScatterAllgather, DoubleTree or TwoLevel`},
		{"Bcast", "Bcats", `line 7: spec.collectives[1].collective is "Bcats", want Barrier, Bcast, `},
		{"{collective: Bcast, algorithm: TwoLevel}", "{collective: ReduceScatter, ranks: 4, pods: 2, maxBytes: 8, algorithm: Pairwise}", "line 7: spec.collectives[1].maxBytes is 8: rules for the same collective"},
		{"algorithm: TwoLevel", "algorithm: TwoLevel, within: 7", "within"},
		{"spec:\n", "spec:\n  encryption: TLS\n", "line 5: spec.encryption is not for --collectives"},
		{good[strings.Index(good, "  collectives:"):], "  encryption: TLS\n", "spec.collectives has no rules"},
		{"FabricProfile", "MPIJob", "1 objects, want one FabricProfile"},
		{"apiVersion", "---\n---\napiVersion", ""},
		{good, good + "---\n" + good, "2 objects, want one FabricProfile"},
		{good, "- {collective: Bcast", "line 1"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		if _, err := ReadCollectives([]byte(text)); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.to, err, c.want)
		}
	}
}
