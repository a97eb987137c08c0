package manifest

import "testing"

// TestExpand checks that references are expanded as by the kubelet.
func TestExpand(t *testing.T) {
	lookup := lookupIn([]string{"A=1", "B=x y", "A=2", "EMPTY="})
	for text, want := range map[string]string{
		"":             "",
		"plain":        "plain",
		"$(A)":         "2",
		"-n=$(A)$(B).": "-n=2x y.",
		"$(EMPTY)|":    "|",
		"$(C) stays":   "$(C) stays",
		"$$(A)":        "$(A)",
		"$$$(A)":       "$2",
		"$$$$(A)":      "$$(A)",
		"$A ${A}":      "$A ${A}",
		"$(A":          "$(A",
		"$(A $(A)":     "$(A $(A)",
		"end $":        "end $",
		"$":            "$",
		"$()":          "$()",
	} {
		if got := expand(text, lookup); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
