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

// findProgram returns the path of a container's program on this machine. It tries the
// manifest's path, then the file of the same name in the directory of this program, then
// PATH, and reports a program that is not at the manifest's path.
func (m *manifestRun) findProgram(name, workDir string) (string, error) {
	file := name
	if workDir != "" && strings.Contains(name, "/") && !filepath.IsAbs(name) {
		file = filepath.Join(workDir, name)
	}
	path, err := exec.LookPath(file)
	if err == nil {
		return path, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, exec.ErrNotFound) {
		return file, nil // the file exists and cannot be run: the job's error says why
	}
	if path := substitute(filepath.Base(name)); path != "" {
		m.reportOnce("%s is not on this machine: %s is run", name, path)
		return path, nil
	}
	return "", &jobrun.Failure{Code: launch.CannotRun(err), Text: fmt.Sprintf("program %s is not on this machine, and no %s is next to outrigger or in PATH: "+
		"build it, or give another: `outrigger run -f %s -- PROGRAM ARGS`", name, filepath.Base(name), m.o.file)}
}

// substitute returns the path of the program called base in the directory of this program
// or in PATH, or "" if there is none.
func substitute(base string) string {
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

// workDir returns the container's working directory, or "" if this machine has no such
// directory.
func (m *manifestRun) workDir() string {
	dir := m.plan.WorkDir
	if dir == "" {
		return ""
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		m.reportOnce("workingDir %s is no directory of this machine: ranks run in the current one", dir)
		return ""
	}
	return dir
}

// reportOnce prints a message the first time only: each pod of each attempt would repeat
// it.
func (m *manifestRun) reportOnce(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if !m.reported[text] {
		m.reported[text] = true
		m.o.report("%s", text)
	}
}
