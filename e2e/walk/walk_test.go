//go:build cluster

package walk

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDocuments follows docs/install.md and docs/first-program.md: an administrator installs,
// an author runs a first program and one that hangs, the administrator upgrades meanwhile,
// uninstalls and installs again.
func TestDocuments(t *testing.T) {
	admin := openShell(t)
	// Another package's tests may have installed it.
	admin.in(root, "helm uninstall outrigger --namespace outrigger-system --ignore-not-found --wait")
	admin.in(root, "kubectl delete namespace outrigger-system --ignore-not-found")
	install := func() {
		t.Helper()
		command := strings.ReplaceAll(blocks(t, "install.md", "3. Chart", 1)[0], "--set images.registry=registry.example/hpc", "") // the nodes have the images
		admin.walk(root, command)
	}
	step := func(name string, do func()) {
		t.Helper()
		begun := time.Now()
		do()
		t.Logf("%s: %v", name, time.Since(begun).Round(time.Second/10))
	}
	step("install", func() {
		admin.walk(root, blocks(t, "install.md", "2. Namespace", 1)[0])
		install()
		if out := admin.walk(root, blocks(t, "install.md", "4. A job", 1)[0]); !strings.Contains(out, "every rank has ended well, over [tcp]") {
			t.Errorf("helm test says\n%s", out)
		}
	})
	step("first program", func() { firstProgram(t) })
	author := openShell(t)
	step("a job that hangs", func() { author.hang() })
	removal := blocks(t, "install.md", "Upgrade and removal", 2)
	step("upgrade", func() {
		admin.walk(root, removal[0])
		admin.in(root, "kubectl -n outrigger-system rollout status deployment/outrigger-operator")
		author.eventually("kubectl get mpijob hang", "SuspectedDeadlock") // it runs on
	})
	step("uninstall", func() {
		admin.walk(root, removal[1])
		if out := author.in(root, "kubectl get mpijob hang -o name; kubectl get crd mpijobs.outrigger.dev fabricprofiles.outrigger.dev -o name; kubectl -n outrigger-system get secret outrigger-issuer -o name"); strings.Count(out, "\n") != 4 {
			t.Errorf("what stays: %s", out)
		}
	})
	step("install again", func() {
		install()
		author.in(root, `kubectl patch mpijob hang --type=merge -p '{"spec":{"runPolicy":{"activeDeadlineSeconds":1}}}'`)
		author.eventually(`kubectl get mpijob hang -o jsonpath='{.status.firstFailure.reason}: {.status.firstFailure.message}'`,
			"DeadlineExceeded: not finished within 1 s; ranks 0 and 1 wait for each other: ")
	})
}

// firstProgram runs the commands of docs/first-program.md, up to a job on the cluster.
func firstProgram(t *testing.T) {
	t.Helper()
	s := openShell(t)
	laptop := blocks(t, "first-program.md", "From nothing to four ranks in two pods", 3)
	s.walk(s.dir, laptop[0])
	dir := filepath.Join(s.dir, "solver")
	s.write(dir, "main.go", laptop[1])
	if out := s.walk(dir, laptop[2]); !strings.Contains(out, "rank 3 of 4: the ranks add up to 6") {
		t.Errorf("on this machine it says\n%s", out)
	}
	cluster := blocks(t, "first-program.md", "On a cluster", 3)
	s.walk(dir, skopeo.ReplaceAllString(cluster[0], ""))
	if err := lab.Load(filepath.Join(dir, "solver.tar")); err != nil {
		t.Fatal(err)
	}
	s.write(dir, "solver.yaml", cluster[1])
	out := s.walk(dir, cluster[2])
	for _, want := range []string{"[0] rank 0 of 4: the ranks add up to 6\n", "[3] rank 3 of 4: the ranks add up to 6\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// skopeo matches the command that copies an archive to a registry. It is left out: there is no
// registry here.
var skopeo = regexp.MustCompile(`(?m)^skopeo .*$`)

func (s *shell) write(dir, name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// hang runs a job whose ranks wait for each other, and asks why.
func (s *shell) hang() {
	s.t.Helper()
	s.walk(s.dir, blocks(s.t, "first-program.md", "From nothing to four ranks in two pods", 3)[0])
	dir := filepath.Join(s.dir, "solver")
	s.write(dir, "main.go", wrongTag)
	s.walk(dir, "go mod tidy\nCGO_ENABLED=0 go build -o solver .\n/path/to/outrigger/bin/outrigger image -t walk/hang:v1 solver")
	if err := lab.Load(filepath.Join(dir, "solver.tar")); err != nil {
		s.t.Fatal(err)
	}
	manifest := blocks(s.t, "first-program.md", "On a cluster", 3)[1]
	for old, now := range map[string]string{
		"ranks: 4": "ranks: 2", "ranksPerPod: 2": "ranksPerPod: 1", "name: solver\nspec": "name: hang\nspec",
		"image: registry.example.com/team/solver:v1": "image: walk/hang:v1",
	} {
		if !strings.Contains(manifest, old) {
			s.t.Fatalf("the manifest has no %q", old)
		}
		manifest = strings.Replace(manifest, old, now, 1)
	}
	s.write(dir, "hang.yaml", strings.TrimRight(manifest, "\n")+"\n  runPolicy:\n    deadlockAfterSeconds: 5\n")
	s.in(dir, "kubectl apply -f hang.yaml")
	s.eventually("kubectl get mpijob hang", "SuspectedDeadlock")
	const why = "recv from 0 tag 8; unexpected here: from 0 tag 7, 800 B (a wrong tag?)"
	s.eventually(`kubectl get mpijob hang -o jsonpath='{.status.conditions[?(@.status=="True")].message}'`, why)
	s.eventually("kubectl get events --field-selector type=Warning", "suspected deadlock: every rank has waited for 5 s or longer, and nothing is under way")
	if out := s.in(dir, s.bin+"/outrigger why -n "+s.namespace+" hang"); !strings.Contains(out, "rank 1 waits ") || !strings.Contains(out, why) {
		s.t.Errorf("outrigger why says\n%s", out)
	}
}

// wrongTag is a program with a mistake.
const wrongTag = `package main

import (
	"context"
	"log"

	mpi "github.com/outrigger-hpc/outrigger/clientlib"
)

func main() {
	ctx := context.Background()
	s, err := mpi.Open(ctx, mpi.Config{})
	if err != nil {
		log.Fatal(err)
	}
	w := s.World()
	buf := make([]float64, 100)
	if w.Rank() == 0 {
		err = mpi.Send(ctx, w, buf, 1, 7)
	} else {
		_, err = mpi.Recv(ctx, w, buf, 0, 8)
	}
	if err == nil {
		err = w.Barrier(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}
`
