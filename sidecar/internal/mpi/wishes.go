package mpi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// wish is what a job asks for beside its MPI: variables, and a library that is loaded
// before all others.
type wish struct {
	env     []string
	preload string
}

// preloaded is a wish with a library that lies beside the provider in dir. name is the
// variable by which it was asked for.
func preloaded(dir, file, name string, env ...string) (wish, error) {
	path := filepath.Join(dir, file)
	if _, err := os.Stat(path); err != nil {
		return wish{}, fmt.Errorf("%s is set, and %s is not beside the provider: %w", name, file, err)
	}
	return wish{env: env, preload: path}, nil
}

// wishes is the environment of all that a job asks for, and of more.
func wishes(dir string, more ...wish) ([]string, error) {
	placing, err := placement(dir)
	if err != nil {
		return nil, err
	}
	progress, err := progressing(dir)
	if err != nil {
		return nil, err
	}
	var env, preload []string
	for _, w := range append(more, placing, progress) {
		env = append(env, w.env...)
		if w.preload != "" {
			preload = append(preload, w.preload)
		}
	}
	if len(preload) == 0 {
		return env, nil
	}
	if more := os.Getenv("LD_PRELOAD"); more != "" {
		preload = append(preload, more)
	}
	return append(env, "LD_PRELOAD="+strings.Join(preload, ":")), nil
}
