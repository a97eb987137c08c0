// Package mpi is how an unmodified MPI program is started: which MPI it is, which
// environment makes that one use Outrigger's libfabric provider, how its ranks
// find each other, and whether it really did.
package mpi

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Family is a kind of MPI library.
type Family string

// The families. Auto is found out; None is a program that uses no MPI, or whose ranks shall each
// run as a job of their own; Unsaid is one of which nothing is said.
const (
	Unsaid  Family = ""
	Auto    Family = "auto"
	MPICH   Family = "mpich"
	Intel   Family = "intel"
	OpenMPI Family = "openmpi"
	None    Family = "none"

	// unknown is what Auto comes to for a program that does not say, such as a
	// script: it gets what every family needs.
	unknown Family = "unknown"
)

// Parse reads a family's name, as a flag has it.
func Parse(text string) (Family, error) {
	switch f := Family(strings.ToLower(text)); f {
	case Auto, MPICH, Intel, OpenMPI, None, Unsaid:
		return f, nil
	}
	return None, fmt.Errorf("--mpi %q: want auto, mpich, intel, openmpi or none", text)
}

// sonames are the libraries by which a program shows its family. MPICH and Intel
// have one binary interface and so one name; what each needs does not disturb
// the other.
var sonames = map[string]Family{
	"libmpi.so.12": MPICH, "libmpich.so.12": MPICH, "libmpicxx.so.12": MPICH, "libmpifort.so.12": MPICH,
	openMPI: OpenMPI, "libmpi_cxx.so.40": OpenMPI, "libmpi_mpifh.so.40": OpenMPI,
	"libmpi_abi.so.0": unknown, "libmpi_abi.so.1": unknown,
}

// detect finds out what a program is linked to. A program that is linked to no MPI may load
// one later, as interpreters do, or run another program, as static wrappers of images do.
func detect(path string) (Family, error) {
	links, err := dynamic(path)
	if _, unread := errors.AsType[*os.PathError](err); unread {
		return None, fmt.Errorf("looking for the MPI of a program: %w", err)
	}
	if err != nil {
		return unknown, nil //nolint:nilerr // a script, or damaged, which starting it says
	}
	for _, l := range links[elf.DT_NEEDED] {
		if family, ok := sonames[l]; ok {
			return family, nil
		}
	}
	return unknown, nil
}

// Refuse says why a program of which nothing is said may not start: it is linked to an MPI, and
// each rank would do the whole work as a job of its own.
func Refuse(program string) error {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil //nolint:nilerr // starting it says what is wrong
	}
	family, linked := Linked(path)
	if !linked {
		return nil
	}
	return fmt.Errorf("%s is linked to an MPI (%s), and nothing says that its ranks are one job: use --mpi auto (mpi: Auto of an MPIJob), or --mpi none (None) to have each rank run as a job of its own", program, family)
}

// Contradict says why a program that is linked to another MPI than the one that is said may not
// start: it would not find its ranks. MPICH and Intel MPI have one binary interface, and what
// is linked to no MPI may load any.
func Contradict(said Family, program string) error {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil //nolint:nilerr // starting it says what is wrong
	}
	family, linked := Linked(path)
	if !linked || said.runs(family) {
		return nil
	}
	return fmt.Errorf("--mpi (mpi of an MPIJob) says %s, and %s is linked to %s: say %s, or auto, which looks at the program", spelled[said], program, spelled[family], spelled[family])
}

// runs reports whether a program that is linked to a family runs as one of f.
func (f Family) runs(linked Family) bool {
	return !f.certain() || !linked.certain() || (f == OpenMPI) == (linked == OpenMPI)
}

// spelled are the families as an MPIJob names them.
var spelled = map[Family]string{MPICH: "MPICH", Intel: "Intel", OpenMPI: "OpenMPI"}

// Linked reports whether the program at a path is linked to an MPI, and to which: that of
// MPICH is Intel MPI's, too.
func Linked(path string) (Family, bool) {
	f, err := detect(path)
	return f, err == nil && f.certain()
}

// openMPI is the name of Open MPI's library.
const openMPI = "libmpi.so.40"

// besideProgram finds Open MPI's library in the folders that a program itself says
// to look in; "": it does not say, and the system's way finds it.
func besideProgram(path string) string {
	links, err := dynamic(path)
	if err != nil {
		return "" // a script
	}
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		for _, dir := range filepath.SplitList(strings.Join(links[tag], ":")) {
			dir = strings.ReplaceAll(strings.ReplaceAll(dir, "${ORIGIN}", filepath.Dir(path)), "$ORIGIN", filepath.Dir(path))
			if library := filepath.Join(dir, openMPI); filepath.IsAbs(library) {
				if _, err := os.Stat(library); err == nil {
					return library
				}
			}
		}
	}
	return ""
}

// certain reports whether a program of the family has to use MPI.
func (f Family) certain() bool { return f != None && f != Unsaid && f != unknown && f != Auto }
