package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// transport is what carries data between pods in this build.
const transport = bootstrap.TransportTCP

// exitConfig is the exit code for what another start will not change: EX_CONFIG
// of sysexits(3).
const exitConfig = 78

// errTransport is wrapped by what require says.
var errTransport = errors.New("the job requires a transport that this sidecar has not")

// require refuses a job that asks for a transport which is not here: what the
// job would run over instead is slower by orders of magnitude, and nobody would
// notice.
func require(want []string, environ []string) error {
	if len(want) == 0 || slices.Contains(want, transport) {
		return nil
	}
	var missing []string
	switch list, err := devices.FromEnv(environ); {
	case err != nil:
		missing = append(missing, err.Error())
	case !slices.ContainsFunc(list, func(d devices.Device) bool { return d.Kind == "hca" }):
		missing = append(missing, "no HCA is allocated to this container: give it a limit for "+names.ResourceHCA+", on nodes whose device plugin offers it")
	}
	missing = append(missing, "this build has no verbs link")
	return fmt.Errorf("%w: tuning.require is %q, data between pods goes by %s: %s", errTransport, want, transport, strings.Join(missing, "; "))
}
