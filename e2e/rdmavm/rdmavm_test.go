//go:build rdmavm

package rdmavm

import (
	"strings"
	"testing"
	"time"
)

// TestMachine: a machine starts, has a device that works, and what goes wrong
// inside comes out.
func TestMachine(t *testing.T) {
	for name, c := range map[string]struct {
		command []string
		status  int
		output  string
	}{
		"device": {[]string{"ibv_devinfo", "-v"}, 0, "PORT_ACTIVE"},
		"fails":  {[]string{"ip", "link", "show", "nothing"}, 1, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Do(t.Context(), Run{Name: name, Commands: [][]string{c.command}, Limit: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Status != c.status || !strings.Contains(got[0].Output, c.output) {
				t.Errorf("status %d (%s), output:\n%s", got[0].Status, got[0].Cause, got[0].Output)
			}
		})
	}
}
