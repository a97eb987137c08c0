package verdict

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocumentedTimes: the times and counts in docs/mpijob-reference.md are those
// of the code.
func TestDocumentedTimes(t *testing.T) {
	text, err := os.ReadFile("../../../docs/mpijob-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range []string{
		fmt.Sprintf("at most the pod's `terminationGracePeriodSeconds`, never more than %.0f seconds, and %.0f seconds for the status to arrive", readMax.Seconds(), settle.Seconds()),
		fmt.Sprintf("pods are not made for %.0f seconds, or %.0f where the Job's events say who refuses them", podsPatience.Seconds(), unclearAfter.Seconds()),
		fmt.Sprintf("scheduled there more than %d times", rejectionLimit),
		fmt.Sprintf("A restart waits %.0f s, the next one %.0f s, and so on up to %.0f minutes", backoffMin.Seconds(), 2*backoffMin.Seconds(), backoffMax.Minutes()),
	} {
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), claim) {
			t.Errorf("docs/mpijob-reference.md does not say %q", claim)
		}
	}
}
