//go:build mpi

package mpi

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// The test binary can run as a proxy between a rank and its sidecar, which removes features from
// Hello and Welcome: to the rank the sidecar is then of an earlier release, and to the sidecar the
// client is.

const (
	olderCommand   = "older"   // FEATURES PROGRAM...: starts the proxy and executes the program
	betweenCommand = "between" // FEATURES: the proxy; its descriptor 3 listens
)

func older(args []string) int {
	var err error
	if args[0] == betweenCommand {
		err = between(args[1])
	} else {
		err = behind(args[1], args[2:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "older:", err)
		return 1
	}
	return 0
}

// behind starts the proxy and executes the program in this process, so that the program has the
// process that the launcher started.
func behind(features string, program []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// In the folder of the sidecar's socket, which the job removes: the proxy may be killed.
	path := filepath.Join(filepath.Dir(os.Getenv(names.EnvSocket)), fmt.Sprint("older", os.Getpid()))
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return err
	}
	file, err := l.File()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), self, betweenCommand, features)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{file}, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := os.Setenv(names.EnvSocket, path); err != nil {
		return err
	}
	return syscall.Exec(program[0], program, os.Environ())
}

func between(features string) error {
	mask, err := strconv.ParseUint(features, 0, 64)
	if err != nil {
		return err
	}
	here, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	l, ok := here.(*net.UnixListener)
	if !ok {
		return fmt.Errorf("descriptor 3 is a %T", here)
	}
	if err := l.SetDeadline(time.Now().Add(jobTime)); err != nil {
		return err
	}
	client, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	sidecar, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: os.Getenv(names.EnvSocket), Net: "unixpacket"})
	if err != nil {
		return err
	}
	if err := pass(client, sidecar, func(b []byte) { keep(b, mask) }); err != nil {
		return err
	}
	if err := pass(sidecar, client, func(b []byte) {
		keep(b, mask)
		clear(b[68:72]) // an earlier release does not report sharers
	}); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, sidecar) // until the sidecar closes
		_ = client.CloseWrite()
	}()
	_, err = io.Copy(io.Discard, client)
	_ = sidecar.Close() // passes on that the client has closed
	return err
}

// keep clears the features that mask lacks in a Hello or a Welcome, which have them at the same
// offset.
func keep(b []byte, mask uint64) {
	binary.LittleEndian.PutUint64(b[8:], binary.LittleEndian.Uint64(b[8:])&mask)
}

// pass forwards a message with its descriptors, changed by change.
func pass(from, to *net.UnixConn, change func([]byte)) error {
	b, oob := make([]byte, shm.WelcomeBytes), make([]byte, unix.CmsgSpace(3*4))
	n, oobn, _, _, err := from.ReadMsgUnix(b, oob)
	if err != nil {
		return err
	}
	change(b[:n])
	_, _, err = to.WriteMsgUnix(b[:n], oob[:oobn], nil)
	return err
}

// first has the features of the first release of the contract.
const first = shm.FeaturesRequired | shm.FeatureRMA | shm.FeatureColl

func behindOlder(t *testing.T, features uint64, program string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, olderCommand, strconv.FormatUint(features, 10), program}
}

// TestOlderSidecar checks that the C client works with a sidecar that lacks the newest features, and
// the sidecar with such a client.
func TestOlderSidecar(t *testing.T) {
	for _, pods := range []int{1, 2} {
		t.Run(fmt.Sprintf("pods=%d", pods), func(t *testing.T) {
			job{ranks: 2, pods: pods, mpi: "none"}.mustRun(t, "older: all is well", behindOlder(t, first, at(t, "c/older"))...)
			for _, features := range []uint64{first, shm.FeaturesRequired} {
				out := job{ranks: 4, pods: pods, mpi: "none"}.mustRun(t, "rank 3 played 12 scenarios", behindOlder(t, features, at(t, "c/conformance"))...)
				if n := strings.Count(out, "played 12 scenarios"); n != 4 {
					t.Errorf("%d ranks have played\n%s", n, out)
				}
			}
		})
	}
	t.Run("with newer clients", func(t *testing.T) {
		half := behindOlder(t, first, at(t, "c/conformance"))
		script := fmt.Sprintf("if [ $OUTRIGGER_RANK -lt 2 ]; then exec %s; else exec %s; fi", strings.Join(half, " "), at(t, "c/conformance"))
		job{ranks: 4, pods: 2, mpi: "none"}.mustRun(t, "rank 3 played 12 scenarios", "/bin/sh", "-c", script)
	})
}

// TestOlderSidecarOfMPI checks that an MPI works without activity reports, and that its error names
// a feature that it needs.
func TestOlderSidecarOfMPI(t *testing.T) {
	m := mpich(t)
	program := m.build(t, "check")
	job{ranks: 4, pods: 2, mpi: "mpich", env: m.env}.mustRun(t, "checked over 4 ranks", behindOlder(t, first|shm.FeatureData, program)...)
	code, out := job{ranks: 2, pods: 2, mpi: "mpich", env: m.env}.run(t, behindOlder(t, first, program)...)
	if code == 0 || !strings.Contains(out, "does not carry data with a tag, which an MPI needs") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
