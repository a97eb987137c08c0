package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/launch"
)

// find is where a container's program is on this machine: where the manifest
// says, else by its name beside this program, else in PATH. What is not where the
// manifest says is said.
func (m *manifestRun) find(name, workDir string) (string, error) {
	place := name
	if workDir != "" && strings.Contains(name, "/") && !filepath.IsAbs(name) {
		place = filepath.Join(workDir, name)
	}
	path, err := exec.LookPath(place)
	if err == nil {
		return path, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, exec.ErrNotFound) {
		return place, nil // it is there and cannot be run: the job says why
	}
	if path := elsewhere(filepath.Base(name)); path != "" {
		m.once("%s is not on this machine: %s is run", name, path)
		return path, nil
	}
	return "", &jobrun.Failure{Code: launch.CannotRun(err), Text: fmt.Sprintf("program %s is not on this machine, and no %s is beside outrigger or in PATH: "+
		"build it, or give another: `outrigger run -f %s -- PROGRAM ARGS`", name, filepath.Base(name), m.o.file)}
}

// elsewhere looks for a program by its name; "": there is none.
func elsewhere(base string) string {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), base)); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(base)
	if err != nil {
		return ""
	}
	return path
}

// workDir is the container's working directory, if there is such a one here.
func (m *manifestRun) workDir() string {
	dir := m.plan.WorkDir
	if dir == "" {
		return ""
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		m.once("workingDir %s is no directory of this machine: ranks run in the current one", dir)
		return ""
	}
	return dir
}

// once says something that every pod and attempt would say again.
func (m *manifestRun) once(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if !m.said[text] {
		m.said[text] = true
		m.o.say("%s", text)
	}
}
