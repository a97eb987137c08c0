package mpi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Ranks starts the ranks of one pod as an MPI's.
type Ranks struct {
	family Family
	dir    string // with the provider
	socket string // process management of the sidecar
	pmix   *pmix  // nil: the family has no use for it
	port   *port  // instead of inherited descriptors; nil: those
}

// ErrUnused is what a rank is reported for that ran to its end without Outrigger.
var ErrUnused = errors.New("it ran to its end without Outrigger")

// Prepare finds out what program needs; nil: nothing. socket is the sidecar's for
// applications, self the path of this program.
func Prepare(f Family, program, socket, self string) (*Ranks, error) {
	if f == Auto {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, nil //nolint:nilnil // starting it says what is wrong
		}
		if f, err = detect(path); err != nil {
			return nil, err
		}
	}
	if f == None {
		return nil, nil //nolint:nilnil // as said above
	}
	dir, err := Folder(self)
	if err != nil {
		return nil, err
	}
	r := &Ranks{family: f, dir: dir, socket: socket + names.PMISuffix}
	if f != MPICH && f != Intel {
		r.pmix = newPMIx(filepath.Join(dir, pmixFile), r.socket)
		if path, err := exec.LookPath(program); err == nil && os.Getenv(names.EnvLibMPI) == "" {
			r.pmix.library = besideProgram(path)
		}
	}
	byPort, err := wantsPort(f, os.Getenv(names.EnvPMI))
	if err == nil && byPort {
		r.port, err = listenPort(r.socket)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// wantsPort reads EnvPMI. Open MPI has no use for a port.
func wantsPort(f Family, way string) (bool, error) {
	switch way {
	case "", "fd":
		return false, nil
	case "port":
		return f != OpenMPI, nil
	}
	return false, fmt.Errorf("%s=%s: want fd or port", names.EnvPMI, way)
}

// patience bounds one exchange with the sidecar, which answers from memory.
const patience = 10 * time.Second

// inherited is the first descriptor after the standard ones.
const inherited = 3

// Dress gives a rank its environment and its connection to the sidecar's process
// management.
func (r *Ranks) Dress(ctx context.Context, rank int) ([]string, []*os.File, error) {
	env := environment(r.family, r.dir)
	var files []*os.File
	if r.port != nil {
		env = append(env, r.port.variables(rank)...)
	} else {
		more, f, err := r.introduce(ctx, rank)
		if err != nil {
			return nil, nil, err
		}
		env, files = append(env, more...), append(files, f)
	}
	if r.pmix != nil {
		env = append(env, r.pmix.variables(ctx, rank)...)
	}
	return env, files, nil
}

// introduce makes a connection for a rank on which the sidecar knows who it is,
// and says by which variables it finds it.
func (r *Ranks) introduce(ctx context.Context, rank int) ([]string, *os.File, error) {
	conn, err := r.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = conn.Close() }() // the rank has its own
	answers, err := ask(conn, fmt.Sprintf("cmd=initack pmiid=%d", rank), 4)
	if err != nil {
		return nil, nil, err
	}
	size, err := strconv.Atoi(answers["size"])
	if err != nil || size < 1 {
		return nil, nil, fmt.Errorf("process management at %s answers with size %q", r.socket, answers["size"])
	}
	f, err := conn.(*net.UnixConn).File() // blocking, as the libraries want it
	if err != nil {
		return nil, nil, fmt.Errorf("process management: %w", err)
	}
	return []string{fmt.Sprintf("PMI_FD=%d", inherited), fmt.Sprintf("PMI_RANK=%d", rank), fmt.Sprintf("PMI_SIZE=%d", size)}, f, nil
}

// Judge says whether a rank that has ended well has used Outrigger. An MPI that
// found another transport, or that ran as a job of one rank, ends just as well.
func (r *Ranks) Judge(rank int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing more is asked
	a, err := ask(conn, fmt.Sprintf("cmd=outrigger_rank rank=%d", rank), 1)
	if err != nil {
		return err
	}
	met, attached := a["init"] == "1" || r.pmix.met(rank), a["attached"] == "1"
	switch {
	case attached && (met || !r.family.certain()):
		return nil
	case attached || r.family.certain() && !met:
		return fmt.Errorf("%w: its MPI never asked for the other ranks, so that each ran as a job of its own; is it %s? Name the program's MPI with --mpi%s", ErrUnused, r.family, r.pmix.why())
	case met:
		return fmt.Errorf("%w: its MPI took another transport; is the program's MPI built with libfabric (MPICH: device ch4:ofi)? docs/mpi.md says which are", ErrUnused)
	}
	return nil // a script that runs no MPI
}

// Close removes what was made for the ranks, which have ended.
func (r *Ranks) Close() error { return errors.Join(r.port.close(), r.pmix.close()) }

func (r *Ranks) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	conn, err := d.DialContext(ctx, "unix", r.socket)
	if err != nil {
		return nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

// ask sends a line and reads the fields of as many.
func ask(conn net.Conn, line string, answers int) (map[string]string, error) {
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	fields := map[string]string{}
	// Byte by byte in effect: nothing behind the answers may be read, since the
	// connection goes on in the rank. The sidecar says nothing unasked.
	in := bufio.NewReader(conn)
	for range answers {
		text, err := in.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("process management of the sidecar: %w", err)
		}
		for word := range strings.FieldsSeq(text) {
			if key, value, ok := strings.Cut(word, "="); ok {
				fields[key] = value
			}
		}
	}
	return fields, nil
}
