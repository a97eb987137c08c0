package mpi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Ranks starts the ranks of one pod as an MPI's.
type Ranks struct {
	family  Family
	dir     string   // with the provider
	wished  []string // variables of what the job asks for beside
	scripts bool     // a rank may run several programs, one after the other
	sidecar management
	pmix    *pmix // nil: the family has no use for it
	where   struct {
		sync.Mutex
		known *place
	}
	port *port // instead of inherited descriptors; nil: those
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
	if f == None || f == Unsaid {
		return nil, nil //nolint:nilnil // as said above
	}
	dir, err := Folder(self)
	if err != nil {
		return nil, err
	}
	wished, err := wishes(f, dir)
	if err != nil {
		return nil, err
	}
	r := &Ranks{family: f, dir: dir, wished: wished, sidecar: management(socket + names.PMISuffix)}
	path, missing := exec.LookPath(program)
	if missing == nil {
		_, linked := Linked(path)
		r.scripts = !linked
	}
	if f != MPICH && f != Intel {
		r.pmix = newPMIx(filepath.Join(dir, pmixFile), r.sidecar)
		if r.pmix.again = r.scripts; missing == nil && os.Getenv(names.EnvLibMPI) == "" {
			r.pmix.library = besideProgram(path)
		}
	}
	byPort, err := wantsPort(f, os.Getenv(names.EnvPMI))
	if err == nil && byPort {
		r.port, err = listenPort(string(r.sidecar), complain)
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

// inherited is the first descriptor after the standard ones.
const inherited = 3

// Dress gives a rank its environment and its connection to the sidecar's process
// management.
func (r *Ranks) Dress(ctx context.Context, rank int) ([]string, []*os.File, error) {
	job, err := r.place(ctx)
	if err != nil {
		return nil, nil, err
	}
	env := slices.Concat(environment(r.family, r.dir), withoutMPIRun(r.family, r.dir), r.wished, job.counted(r.family, rank))
	if r.pmix != nil {
		env = append(env, r.pmix.variables(ctx, rank)...)
		// A script may run no MPI; a program of Open MPI would end with a code that says nothing.
		if err := r.pmix.fitness(); err != nil && r.family.certain() {
			return nil, nil, err
		}
	}
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
	return env, files, nil
}

// place asks the sidecar once: ranks are dressed at the same time.
func (r *Ranks) place(ctx context.Context) (*place, error) {
	r.where.Lock()
	defer r.where.Unlock()
	if r.where.known == nil {
		job, err := r.sidecar.place(ctx)
		if err != nil {
			return nil, err
		}
		r.where.known = &job
	}
	return r.where.known, nil
}

// introduce makes a connection for a rank on which the sidecar knows who it is,
// and says by which variables it finds it.
func (r *Ranks) introduce(ctx context.Context, rank int) ([]string, *os.File, error) {
	conn, err := r.sidecar.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = conn.Close() }() // the rank has its own
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, nil, err
	}
	if _, err := ask(conn, fmt.Sprintf("cmd=initack pmiid=%d", rank), 4); err != nil {
		return nil, nil, err
	}
	f, err := conn.(*net.UnixConn).File() // blocking, as the libraries want it
	if err != nil {
		return nil, nil, fmt.Errorf("process management: %w", err)
	}
	return []string{fmt.Sprintf("PMI_FD=%d", inherited)}, f, nil
}

// errNotFinalized is of a rank that others may wait for: some MPIs do so for ever.
var errNotFinalized = errors.New("it has not called MPI_Finalize: its process ended without closing its session")

// Judge says whether a rank that has ended well has used Outrigger, to its end. An MPI that
// found another transport, or that ran as a job of one rank, ends just as well.
func (r *Ranks) Judge(ctx context.Context, rank int) error {
	f, err := r.judge(ctx, rank)
	if err == nil {
		_, _ = r.sidecar.ended(ctx, rank) // one of an older release does not wait for the rank; f says whether it has vanished
	}
	if err == nil && r.scripts && f.attached {
		_ = r.sidecar.over(ctx, rank, r.pmix.ends(rank)) // nor for the others
	}
	return err
}

func (r *Ranks) judge(ctx context.Context, rank int) (f fate, err error) {
	f, err = r.sidecar.fate(context.WithoutCancel(ctx), rank) // it answers from memory
	met := f.met || r.pmix.met(rank)
	switch {
	case err != nil:
		return f, err
	case f.vanished:
		return f, errNotFinalized
	case f.attached && met:
		return f, nil
	case !met && r.family.certain():
		return f, fmt.Errorf("%w: its MPI never asked for the other ranks: it ended before MPI_Init, or each ran as a job of its own; is it %s? If not, name the program's MPI with --mpi%s", ErrUnused, r.family, r.pmix.why())
	case met:
		return f, fmt.Errorf("%w: its MPI took another transport; is the program's MPI built with libfabric (MPICH: device ch4:ofi)? docs/mpi.md says which are", ErrUnused)
	}
	if err := r.idle(ctx, rank); err != nil || ctx.Err() != nil {
		return f, err
	}
	return f, r.alone(ctx, rank, f)
}

// alone judges a rank of a script, or of another program that does not show its MPI, that ended
// well and that no rank waits for.
func (r *Ranks) alone(ctx context.Context, rank int, f fate) error {
	switch {
	case f.loaded:
		job, err := r.place(ctx)
		if err != nil || job.world() == 1 {
			return err
		}
		return fmt.Errorf("%w: a process of this pod has loaded an MPI library, but no rank has met the others: each ran as a job of its own; start the MPI program itself, name its MPI with --mpi, or say --mpi none", ErrUnused)
	case rank == 0 && !f.attached:
		fmt.Fprintln(os.Stderr, "outrigger-launch: --mpi auto: no process of the first pod has told that it has loaded an MPI library; use --mpi none for a program without MPI; if the program uses one, its environment was cleared on the way to it, by a static or setuid wrapper or by a start that is not seen (docs/mpi.md), and each rank ran as a job of its own: start it without that")
	}
	return nil
}

// tellPatience bounds how long the end of the other ranks waits for the sidecar.
const tellPatience = 2 * time.Second

// Failed tells the sidecar that a rank has ended badly, before the others are ended for it,
// whose ends would come to it first, or would be all that it hears of.
func (r *Ranks) Failed(rank, code int) {
	if err := r.pmix.lost(rank); err != nil { // its MPI ends with a code that says nothing
		fmt.Fprintf(os.Stderr, "outrigger-launch: before rank %d failed, what its MPI needs of this pod was lost: %v\n", rank, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellPatience)
	defer cancel()
	_ = r.sidecar.failed(ctx, rank, code) // without it the others hear of those ends
}

// Aborts tells of the ranks of this pod that are to be ended, as the function Aborts does.
func (r *Ranks) Aborts(ctx context.Context, told func(rank, code int, lost bool)) {
	_ = r.sidecar.aborts(ctx, told) // without the sidecar the ranks end for that
}

// Texts has what ranks print by PMIx printed, as Open MPI 5 does with its errors.
func (r *Ranks) Texts(say func(rank int, out bool, text string, printed func())) {
	if r.pmix != nil {
		r.pmix.say = say
	}
}

// Close removes what was made for the ranks, which have ended.
func (r *Ranks) Close() error { return errors.Join(r.port.close(), r.pmix.close()) }
