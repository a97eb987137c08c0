package mpi

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestIdle checks that a rank of a script that ended without MPI is judged when it is known
// whether other ranks wait for it.
func TestIdle(t *testing.T) {
	const unknownYet = "cmd=idle rc=0 known=0 waits=-1\n"
	for what, c := range map[string]struct {
		says []string
		want string // "": no error
	}{
		"no rank waits":         {[]string{unknownYet, "cmd=idle rc=0 known=1 waits=-1\n"}, ""},
		"a question that fails": {[]string{unknownYet, "", "", "cmd=idle rc=0 known=1 waits=7\n"}, "rank 7 waits"},
		"one waits":             {[]string{unknownYet, unknownYet, "cmd=idle rc=0 known=1 waits=7\n"}, "it never called MPI_Init, where rank 7 waits for it"},
		"an older sidecar":      {[]string{""}, ""},
		"what is no rank":       {[]string{"cmd=idle rc=0 known=1 waits=x\n"}, ""},
		"a sidecar that ends":   {[]string{unknownYet, ""}, ""},
	} {
		says := append([]string{"cmd=outrigger_rank rc=0 init=0 attached=0 vanished=0\n"}, c.says...)
		err := (&Ranks{family: unknown, sidecar: sidecar(t, says...)}).Judge(t.Context(), 3)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// TestIdleHastened checks that a launcher that is told to end does not wait for other
// ranks.
func TestIdleHastened(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	err := (&Ranks{family: unknown, sidecar: sidecar(t, "cmd=idle rc=0 known=0 waits=-1\n")}).Judge(ctx, 3)
	if err != nil {
		t.Error(err)
	}
}
