//go:build rdmavm

package rdmavm

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// executed is what the model of I/OAT prints at its end (ioatmodel.Counts).
type executed struct{ Copies, Halts uint64 }

// TestIOATDriver: the driver of Linux accepts the model of I/OAT after its self-test, so that the
// model is judged by another program than the one that is tested on it.
func TestIOATDriver(t *testing.T) {
	n := ioat(t, Run{Name: "ioat-driver", Modules: []string{ModulesIOAT}}, "^TestGuestDriver$",
		`{"ID": 8225, "Conventional": true}`) // Skylake's
	if n.Copies == 0 || n.Halts != 0 {
		t.Errorf("the driver has made %+v, want a copy and no halt", n)
	}
}

// TestIOATVFIO: package ioat drives the model through VFIO and an IOMMU of a virtual machine. The
// model halts in copies (ioatmodel.HaltLater). Another device shows that memory is accessible at
// the addresses of Map, and not after Unmap.
func TestIOATVFIO(t *testing.T) {
	n := ioat(t, Run{Name: "ioat-vfio", Modules: []string{ModulesVFIO}, IOMMU: true}, "^TestGuest(VFIO|Memlock|Translation)$",
		`{"ID": 8225, "Conventional": true, "Faults": [{"Kind": 1, "Every": 301, "Bit": 9}]}`)
	if n.Copies < 3000 || n.Halts < 10 {
		t.Errorf("the device has made %+v", n)
	}
}

// ioat runs tests of package ioat in a machine with a model of a configuration.
func ioat(t *testing.T, r Run, run, config string) (n executed) {
	t.Helper()
	const folder = "../../sidecar/internal/copyeng/ioat"
	test, device := filepath.Join(t.TempDir(), "ioat.test"), filepath.Join(t.TempDir(), "device")
	if err := Compile(test, folder, "ioatguest"); err != nil {
		t.Fatal(err)
	}
	if err := Compile(device, folder+"/ioatmodel/device"); err != nil {
		t.Fatal(err)
	}
	var model *exec.Cmd
	var said bytes.Buffer
	r.Device = func() (*os.File, error) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		socket := os.NewFile(uintptr(pair[0]), "model")
		defer socket.Close()
		model = exec.CommandContext(t.Context(), device, config)
		said.Reset()
		model.ExtraFiles, model.Stdout, model.Stderr = []*os.File{socket}, &said, os.Stderr
		return os.NewFile(uintptr(pair[1]), "QEMU"), model.Start()
	}
	r.Programs, r.Limit = []string{test}, 3*time.Minute
	r.Commands = [][]string{{"ioat.test", "-test.v", "-test.run", run}}
	passes(t, r)
	if err := model.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(said.Bytes(), &n); err != nil {
		t.Fatalf("%q: %v", said.Bytes(), err)
	}
	t.Logf("the device has executed %s", said.Bytes())
	return n
}
