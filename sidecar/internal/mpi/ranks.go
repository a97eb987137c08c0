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

// Ranks starts the ranks of one pod as ranks of an MPI.
type Ranks struct {
	family  Family
	dir     string   // directory of the provider
	extra   []string // variables of the job's settings
	scripts bool     // a rank may run several programs in succession
	sidecar management
	pmix    *pmix // nil: the MPI family does not use PMIx
	where   struct {
		sync.Mutex
		known *position
	}
	port *port // instead of inherited descriptors; nil: descriptors are inherited
}

// ErrUnused is the failure of a rank that ran to its end without Outrigger.
var ErrUnused = errors.New("it ran to its end without Outrigger")

// Prepare returns the Ranks of program, or nil if it needs none. socket is the sidecar's
// socket for applications, self the path of this program.
func Prepare(f Family, program, socket, self string) (*Ranks, error) {
	if f == Auto {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, nil //nolint:nilnil // the start reports the error
		}
		if f, err = detect(path); err != nil {
			return nil, err
		}
	}
	if f == None || f == Unsaid {
		return nil, nil //nolint:nilnil // as documented
	}
	dir, err := Folder(self)
	if err != nil {
		return nil, err
	}
	extra, err := settings(f, dir)
	if err != nil {
		return nil, err
	}
	r := &Ranks{family: f, dir: dir, extra: extra, sidecar: management(socket + names.PMISuffix)}
	path, missing := exec.LookPath(program)
	if missing == nil {
		_, linked := Linked(path)
		r.scripts = !linked
	}
	if f != MPICH && f != Intel {
		r.pmix = newPMIx(filepath.Join(dir, pmixFile), r.sidecar)
		if r.pmix.severalPrograms = r.scripts; missing == nil && os.Getenv(names.EnvLibMPI) == "" {
			r.pmix.library = linkedOpenMPI(path)
		}
	}
	byPort, err := wantsPort(f, os.Getenv(names.EnvPMI))
	if err == nil && byPort {
		r.port, err = listenPort(string(r.sidecar), report)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// wantsPort parses EnvPMI. Open MPI does not use a port.
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

// Dress returns a rank's environment and its connection to the sidecar's process
// management.
func (r *Ranks) Dress(ctx context.Context, rank int) ([]string, []*os.File, error) {
	job, err := r.position(ctx)
	if err != nil {
		return nil, nil, err
	}
	env := slices.Concat(environment(r.family, r.dir), withoutMPIRun(r.family, r.dir), r.extra, job.rankEnv(r.family, rank))
	if r.pmix != nil {
		env = append(env, r.pmix.variables(ctx, rank)...)
		// A script may run no MPI; a program of Open MPI would end with a code without a
		// reason.
		if err := r.pmix.unfitError(); err != nil && r.family.certain() {
			return nil, nil, err
		}
	}
	var files []*os.File
	if r.port != nil {
		env = append(env, r.port.variables(rank)...)
	} else {
		more, f, err := r.connectRank(ctx, rank)
		if err != nil {
			return nil, nil, err
		}
		env, files = append(env, more...), append(files, f)
	}
	return env, files, nil
}

// position asks the sidecar once: Dress is called for all ranks at once.
func (r *Ranks) position(ctx context.Context) (*position, error) {
	r.where.Lock()
	defer r.where.Unlock()
	if r.where.known == nil {
		job, err := r.sidecar.position(ctx)
		if err != nil {
			return nil, err
		}
		r.where.known = &job
	}
	return r.where.known, nil
}

// connectRank makes a connection on which the sidecar knows the rank, and returns the
// variables by which the rank finds it.
func (r *Ranks) connectRank(ctx context.Context, rank int) ([]string, *os.File, error) {
	conn, err := r.sidecar.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = conn.Close() }() // the rank has its own
	if err := conn.SetDeadline(time.Now().Add(exchangeTimeout)); err != nil {
		return nil, nil, err
	}
	if _, err := ask(conn, fmt.Sprintf("cmd=initack pmiid=%d", rank), 4); err != nil {
		return nil, nil, err
	}
	f, err := conn.(*net.UnixConn).File() // blocking, as the libraries need it
	if err != nil {
		return nil, nil, fmt.Errorf("process management: %w", err)
	}
	return []string{fmt.Sprintf("PMI_FD=%d", inherited)}, f, nil
}

// errNotFinalized is the failure of a rank for which other ranks may wait: some MPIs do so
// for ever.
var errNotFinalized = errors.New("it has not called MPI_Finalize: its process ended without closing its session")

// Judge returns an error if a rank that has ended with code 0 has not used Outrigger to its
// end. An MPI that has selected another transport, or that ran as a job of one rank, ends
// with code 0 as well.
func (r *Ranks) Judge(ctx context.Context, rank int) error {
	f, err := r.judge(ctx, rank)
	if err == nil {
		_, _ = r.sidecar.reportEnded(ctx, rank) // a sidecar of an older release does not wait for the rank; f has whether it has vanished
	}
	if err == nil && r.scripts && f.attached {
		_ = r.sidecar.reportOver(ctx, rank, r.pmix.noteEnded(rank)) // nor for the others
	}
	return err
}

func (r *Ranks) judge(ctx context.Context, rank int) (f rankResult, err error) {
	f, err = r.sidecar.rankResult(context.WithoutCancel(ctx), rank) // it answers from memory
	met := f.connected || r.pmix.hasConnected(rank)
	switch {
	case err != nil:
		return f, err
	case f.vanished:
		return f, errNotFinalized
	case f.attached && met:
		return f, nil
	case !met && r.family.certain():
		return f, fmt.Errorf("%w: its MPI never asked for the other ranks: it ended before MPI_Init, or each ran as a job of its own; is it %s? If not, name the program's MPI with --mpi%s", ErrUnused, r.family, r.pmix.errorSuffix())
	case met:
		return f, fmt.Errorf("%w: its MPI took another transport; is the program's MPI built with libfabric (MPICH: device ch4:ofi)? docs/mpi.md lists those that are", ErrUnused)
	}
	if err := r.judgeIdle(ctx, rank); err != nil || ctx.Err() != nil {
		return f, err
	}
	return f, r.judgeAlone(ctx, rank, f)
}

// judgeAlone judges a rank of a script, or of another program that does not show its MPI,
// that ended with code 0 and for which no rank waits.
func (r *Ranks) judgeAlone(ctx context.Context, rank int, f rankResult) error {
	switch {
	case f.loaded:
		job, err := r.position(ctx)
		if err != nil || job.world() == 1 {
			return err
		}
		return fmt.Errorf("%w: a process of this pod has loaded an MPI library, but no rank has met the others: each ran as a job of its own; start the MPI program itself, name its MPI with --mpi, or use --mpi none", ErrUnused)
	case rank == 0 && !f.attached:
		fmt.Fprintln(os.Stderr, "outrigger-launch: --mpi auto: no process of the first pod has reported that it has loaded an MPI library; use --mpi none for a program without MPI; if the program uses one, its environment was cleared on the way to it, by a static or setuid wrapper or by a start that Outrigger does not see (docs/mpi.md), and each rank ran as a job of its own: start it without that")
	}
	return nil
}

// reportTimeout bounds how long the end of the other ranks waits for the sidecar.
const reportTimeout = 2 * time.Second

// Failed reports to the sidecar that a rank has ended with a code other than 0, before the
// other ranks are ended because of it: their ends would reach the sidecar first, or would
// be all that it learns.
func (r *Ranks) Failed(rank, code int) {
	if err := r.pmix.serverError(rank); err != nil { // its MPI ends with a code without a reason
		fmt.Fprintf(os.Stderr, "outrigger-launch: before rank %d failed, what its MPI needs of this pod was lost: %v\n", rank, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	_ = r.sidecar.reportFailed(ctx, rank, code) // without it the others learn of those ends only
}

// Aborts calls aborted for the ranks of this pod that are to be ended, as the function Aborts
// does.
func (r *Ranks) Aborts(ctx context.Context, aborted func(rank, code int, lost bool)) {
	_ = r.sidecar.watchAborts(ctx, aborted) // without the sidecar the ranks end because of that
}

// Texts sets the function that prints texts that ranks print by PMIx, as Open MPI 5 does
// with its errors.
func (r *Ranks) Texts(printText func(rank int, out bool, text string, printed func())) {
	if r.pmix != nil {
		r.pmix.printText = printText
	}
}

// Close removes the resources of the ranks, which have ended.
func (r *Ranks) Close() error { return errors.Join(r.port.close(), r.pmix.close()) }
