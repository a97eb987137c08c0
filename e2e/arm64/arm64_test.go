//go:build arm64guest

package arm64

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
)

const (
	archives = "../../bin/images-arm64"
	emulator = "qemu-aarch64-static"
	patience = 3 * time.Minute
)

// unpack writes the files of an image's archive below a folder.
func unpack(t *testing.T, archive string) (root string, config *v1.ConfigFile) {
	t.Helper()
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatalf("%v: make test-arm64 writes the images", err)
	}
	if config, err = image.ConfigFile(); err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	all := mutate.Extract(image)
	defer func() { _ = all.Close() }() // only read
	for files := tar.NewReader(all); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return root, config
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		name := filepath.Join(root, filepath.Clean("/"+h.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, h.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// programs returns the programs of all images, by name.
func programs(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	images, err := filepath.Glob(archives + "/*.tar")
	if err != nil || len(images) == 0 {
		t.Fatalf("no archives in %s (%v): make test-arm64 writes them", archives, err)
	}
	for _, archive := range images {
		root, config := unpack(t, archive)
		if config.Architecture != "arm64" || config.OS != "linux" {
			t.Errorf("%s is of %s/%s", archive, config.OS, config.Architecture)
		}
		files, err := filepath.Glob(root + "/usr/local/bin/*")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no programs, %v", archive, err)
		}
		for _, f := range files {
			all[filepath.Base(f)] = f
		}
	}
	return all
}

// TestProgramsStart: each program of each image is one for arm64, needs no other
// file, and starts.
func TestProgramsStart(t *testing.T) {
	all := programs(t)
	for _, want := range []string{"outrigger-sidecar", "outrigger-launch", "outrigger-operator", "outrigger-devplugin", "hello", "ring", "npb", "tour"} {
		if all[want] == "" {
			t.Errorf("no image has %s", want)
		}
	}
	for name, file := range all {
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		libraries, err := f.ImportedLibraries()
		if f.Machine != elf.EM_AARCH64 || len(libraries) != 0 || err != nil {
			t.Errorf("%s is for %v and needs %v, %v", name, f.Machine, libraries, err)
		}
		_ = f.Close() // only read
		out, err := exec.CommandContext(t.Context(), emulator, file, "--help").CombinedOutput()
		// Examples without flags say that they need a sidecar.
		if helped := err == nil && strings.Contains(strings.ToLower(string(out)), "usage"); !helped && !strings.Contains(string(out), "OUTRIGGER_SOCKET is not set") {
			t.Errorf("%s --help: %v\n%s", name, err, out)
		}
	}
}

// TestJob: two sidecars and their launchers, with a rank each, as a cluster of arm64
// nodes would run them.
func TestJob(t *testing.T) {
	all := programs(t)
	dir, err := os.MkdirTemp("", "arm64-") //nolint:usetesting // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
	listen := lay(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out := [2]bytes.Buffer{}
	var launchers []*exec.Cmd
	for pod := range 2 {
		socket := fmt.Sprintf("%s/s%d", dir, pod)
		sidecar := exec.CommandContext(context.WithoutCancel(t.Context()), emulator, all["outrigger-sidecar"],
			"--bootstrap", dir+"/job", "--pod", fmt.Sprint(pod), "--socket", socket, "--listen", listen[pod])
		said := new(bytes.Buffer)
		sidecar.Stdout, sidecar.Stderr = said, said
		if err := sidecar.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = sidecar.Process.Signal(syscall.SIGTERM) // it may have ended
			if err := sidecar.Wait(); err != nil {
				t.Errorf("sidecar %d: %v", pod, err)
			}
			if t.Failed() {
				t.Logf("sidecar %d says\n%s", pod, said)
			}
		})
		// The launcher's own system calls start the emulator: its machine's kernel
		// knows arm64 programs.
		l := exec.CommandContext(ctx, emulator, all["outrigger-launch"], "--socket", socket, "--ranks", fmt.Sprintf("%d-%d", pod, pod), "--", emulatorPath(t), all["hello"])
		l.Stdout, l.Stderr = &out[pod], &out[pod]
		l.Cancel = func() error { return l.Process.Signal(syscall.SIGTERM) }
		if err := l.Start(); err != nil {
			t.Fatal(err)
		}
		launchers = append(launchers, l)
	}
	for pod, l := range launchers {
		if err := l.Wait(); err != nil {
			t.Errorf("ranks of pod %d: %v", pod, err)
		}
	}
	if said := out[0].String() + out[1].String(); t.Failed() || !strings.Contains(said, "rank 0 of 2") || !strings.Contains(said, "rank 1 of 2") {
		t.Errorf("the ranks say\n%s", said)
	}
}

func emulatorPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath(emulator)
	if err != nil {
		t.Fatalf("%v: hack/arm64/packages installs it", err)
	}
	return path
}

// lay writes the job document of two pods with a rank each, and their
// certificates; it returns where the sidecars listen.
func lay(t *testing.T, dir string) (listen []string) {
	t.Helper()
	write := func(name string, raw []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	doc := &bootstrap.Document{
		Version: bootstrap.Version, Job: bootstrap.Job{Name: "arm64", ID: "0123456789abcdef"}, Ranks: 2,
		TLS:    bootstrap.TLS{CAFile: dir + "/ca", CertFile: dir + "/cert%d", KeyFile: dir + "/key%d"},
		Memory: bootstrap.Memory{ArenaBytes: 16 << 20},
	}
	a, err := pki.New(doc.Job.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	write("ca", a.CA())
	for i := range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // no client has connected
		listen = append(listen, l.Addr().String())
		doc.Pods = append(doc.Pods, bootstrap.Pod{Name: fmt.Sprint(i), Address: listen[i], FirstRank: i, Ranks: 1})
		leaf, err := a.Leaf(i)
		if err != nil {
			t.Fatal(err)
		}
		write(fmt.Sprintf("cert%d", i), leaf.Cert)
		write(fmt.Sprintf("key%d", i), leaf.Key)
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	write("job", raw)
	return listen
}
