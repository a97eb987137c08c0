//go:build outrigger_profile

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profiled runs the daemon and writes its CPU profile to the folder that OUTRIGGER_PROFILE
// names.
func profiled(do func() int) int {
	f, err := os.Create(filepath.Join(os.Getenv("OUTRIGGER_PROFILE"), fmt.Sprintf("%d.prof", os.Getpid())))
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	status := do()
	pprof.StopCPUProfile()
	if err = errors.Join(err, f.Close()); err != nil {
		fmt.Fprintln(os.Stderr, "outrigger-sidecar: profile:", err)
		return 1
	}
	return status
}
