//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// lab is the cluster that all tests of this package share.
var lab *harness.Cluster

func TestMain(m *testing.M) {
	var err error
	if lab, err = harness.Open(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
