//go:build rdmavm

package rdmavm

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
)

// TestImage: in the image for RDMA, the sidecar finds libibverbs and the libraries that it needs:
// it fails only because this machine's kernel has no devices. The bill of materials names
// Debian's packages.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	make := exec.Command("go", "run", "./hack/image", "-rdma", "-out", dir)
	make.Dir = "../.."
	if said, err := make.CombinedOutput(); err != nil {
		t.Fatalf("hack/image: %v\n%s", err, said)
	}
	root := unpackImage(t, filepath.Join(dir, "outrigger-sidecar-rdma.tar"))
	d := bootstrap.Document{
		Version: bootstrap.Version, Job: bootstrap.Job{Name: "j", ID: "j"}, Ranks: 1,
		Pods:   []bootstrap.Pod{{Name: "0", Address: "127.0.0.1:7077", Ranks: 1}},
		TLS:    bootstrap.TLS{CAFile: "ca", CertFile: "cert", KeyFile: "key"},
		Tuning: bootstrap.Tuning{Require: bootstrap.Names{bootstrap.TransportRDMA}},
	}
	raw, err := json.Marshal(d)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "tmp", "d.json"), raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command("/usr/local/bin/outrigger-sidecar", "--bootstrap", "/tmp/d.json", "--pod", "0", "--socket", "/tmp/s")
	run.SysProcAttr, run.Dir, run.Env = &syscall.SysProcAttr{Chroot: root}, "/", []string{"OUTRIGGER_DEVICES_HCA=" + granted}
	said, _ := run.CombinedOutput() // the exit status is checked below
	if run.ProcessState == nil || run.ProcessState.ExitCode() != 78 || strings.Contains(string(said), "libibverbs cannot be used") || !strings.Contains(string(said), ": verbs: ") {
		t.Errorf("the sidecar ended with %v and said:\n%s", run.ProcessState, said)
	}
	var bill struct {
		Packages []struct{ Name, VersionInfo string }
	}
	raw, err = os.ReadFile(filepath.Join(root, "usr/share/sbom/debian.spdx.json"))
	if err == nil {
		err = json.Unmarshal(raw, &bill)
	}
	if err != nil || len(bill.Packages) < 5 {
		t.Errorf("the bill of materials has %v, %v", bill.Packages, err)
	}
	for _, p := range bill.Packages {
		if p.VersionInfo == "" {
			t.Errorf("the version of %s is not in the bill", p.Name)
		}
	}
}

// unpackImage unpacks the only layer of an image's archive.
func unpackImage(t *testing.T, archive string) string {
	t.Helper()
	root := t.TempDir()
	outer, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	for r := tar.NewReader(outer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(h.Name, "blobs/sha256/") || h.Typeflag == tar.TypeDir {
			continue
		}
		layer, err := gzip.NewReader(r)
		if err != nil {
			continue // a description
		}
		unpackLayer(t, root, tar.NewReader(layer))
	}
}

func unpackLayer(t *testing.T, root string, r *tar.Reader) {
	t.Helper()
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(to, content, fs.FileMode(h.Mode))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
