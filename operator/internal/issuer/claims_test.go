package issuer

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocumentedKeys: the statements in docs/install.md about published keys, the Secret and
// the bounds on callers match the code.
func TestDocumentedKeys(t *testing.T) {
	text, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range []string{
		fmt.Sprintf("by the keys that the API server publishes (`%s`", pathKeys),
		fmt.Sprintf("They are read every %.0f minutes", keysAge.Minutes()),
		fmt.Sprintf("the withdrawal of a signing key (%.0f minutes)", keysAge.Minutes()),
		fmt.Sprintf("answers %v questions a second of one pod, %v of one address, and %v and %v at once", perPod.rate, perAddress.rate, perPod.burst, perAddress.burst),
		fmt.Sprintf("functions of one secret, `%s`", SecretName),
	} {
		if !strings.Contains(string(text), claim) {
			t.Errorf("docs/install.md does not say %q", claim)
		}
	}
}
