package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programsVariable names the folder of Kubernetes' programs, for machines that
// have them already. Without it they are built from source.
const programsVariable = "OUTRIGGER_KUBE"

// Programs returns the folder of etcd, Kubernetes and containerd. It builds them
// when they are not in the cache yet, which takes minutes.
func Programs(ctx context.Context) (string, error) {
	if dir := os.Getenv(programsVariable); dir != "" {
		return dir, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, filepath.Join(root, "hack/kube/build"))
	build.Stderr = os.Stderr // its progress; the folder is all that it prints
	out, err := build.Output()
	if err != nil {
		return "", fmt.Errorf("build Kubernetes' programs with hack/kube/build: %w", err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// moduleRoot returns the folder of the go.mod above the working folder: go test runs
// a package's tests in the package's folder.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's root: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", fmt.Errorf("find Kubernetes' programs: run inside the repository, or set %s to their folder", programsVariable)
	}
	return filepath.Dir(mod), nil
}
