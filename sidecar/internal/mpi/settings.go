package mpi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// setting is the contribution of one option of the job to a program's environment:
// variables, and a library that is loaded before all others.
type setting struct {
	env     []string
	preload string
}

// preloaded returns a setting with a library in the provider's directory dir. name is the
// variable that requests it.
func preloaded(dir, file, name string, env ...string) (setting, error) {
	path := filepath.Join(dir, file)
	if _, err := os.Stat(path); err != nil {
		return setting{}, fmt.Errorf("%s is set, and %s is not in the provider's directory: %w", name, file, err)
	}
	return setting{env: env, preload: path}, nil
}

// settings returns the environment of all options of the job, and of more.
func settings(f Family, dir string, more ...setting) ([]string, error) {
	check, err := checking(f, dir)
	if err != nil {
		return nil, err
	}
	placing, err := placement(dir)
	if err != nil {
		return nil, err
	}
	progress, err := progressing(dir)
	if err != nil {
		return nil, err
	}
	var env, preload []string
	for _, w := range append(more, check, placing, progress) {
		env = append(env, w.env...)
		if w.preload != "" {
			preload = append(preload, w.preload)
		}
	}
	if own := os.Getenv("LD_PRELOAD"); own != "" {
		preload = append(preload, own)
	}
	return append(env, "LD_PRELOAD="+strings.Join(preload, ":"), sanitized(os.Getenv("ASAN_OPTIONS"))), nil
}

// sanitized returns the variable with which a program that was built with AddressSanitizer
// accepts preloaded libraries: by default the sanitizer refuses to start then. None of
// Outrigger's libraries has functions that the sanitizer replaces, except for the
// allocator's, which such a program does not use.
func sanitized(options string) string {
	const allowed = "verify_asan_link_order=0"
	if options == "" {
		return "ASAN_OPTIONS=" + allowed
	}
	return "ASAN_OPTIONS=" + options + ":" + allowed
}
