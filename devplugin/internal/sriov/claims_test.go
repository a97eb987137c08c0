package sriov

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocumentedPauses: the pauses between attempts in docs/devices.md are those of the code,
// and the document has every condition.
func TestDocumentedPauses(t *testing.T) {
	text, err := os.ReadFile("../../../docs/devices.md")
	if err != nil {
		t.Fatal(err)
	}
	claims := []string{fmt.Sprintf("tried again, after %.0f seconds at first and every %.0f minutes at last", pauseFirst.Seconds(), pauseLast.Minutes())}
	for _, s := range States {
		claims = append(claims, fmt.Sprintf("| `%s` |", s))
	}
	for _, claim := range claims {
		if !strings.Contains(string(text), claim) {
			t.Errorf("docs/devices.md does not say %q", claim)
		}
	}
}
