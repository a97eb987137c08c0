// Package mpi starts unmodified MPI programs. It detects a program's MPI, returns the
// environment with which that MPI uses Outrigger's libfabric provider, connects the ranks
// to process management, and judges at the end whether the ranks used Outrigger.
//
// The launcher calls Prepare for a program that it starts once for each rank (Ranks), or
// NewStarter for a program that brings an mpirun of its own (Starter).
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

// The families. Auto is to be detected; None is a program that uses no MPI, or whose ranks
// run as jobs of their own; Unsaid means that no family was given.
const (
	Unsaid  Family = ""
	Auto    Family = "auto"
	MPICH   Family = "mpich"
	Intel   Family = "intel"
	OpenMPI Family = "openmpi"
	None    Family = "none"

	// unknown is the result of Auto for a program that does not show its MPI, such as a
	// script: it gets the variables of every family.
	unknown Family = "unknown"
)

// Parse parses a family's name as a flag has it.
func Parse(text string) (Family, error) {
	switch f := Family(strings.ToLower(text)); f {
	case Auto, MPICH, Intel, OpenMPI, None, Unsaid:
		return f, nil
	}
	return None, fmt.Errorf("--mpi %q: want auto, mpich, intel, openmpi or none", text)
}

// sonames are the libraries that identify a program's family. MPICH and Intel MPI have one
// binary interface and one library name; the variables of one do not disturb the other.
var sonames = map[string]Family{
	"libmpi.so.12": MPICH, "libmpich.so.12": MPICH, "libmpicxx.so.12": MPICH, "libmpifort.so.12": MPICH,
	openMPI: OpenMPI, "libmpi_cxx.so.40": OpenMPI, "libmpi_mpifh.so.40": OpenMPI,
	"libmpi_abi.so.0": unknown, "libmpi_abi.so.1": unknown,
}

// detect returns the family of the MPI to which a program is linked. A program that is
// linked to no MPI may load one later, as interpreters do, or run another program, as
// static wrappers in images do.
func detect(path string) (Family, error) {
	links, err := dynamic(path)
	if _, unread := errors.AsType[*os.PathError](err); unread {
		return None, fmt.Errorf("finding the MPI of a program: %w", err)
	}
	if err != nil {
		return unknown, nil //nolint:nilerr // a script, or a damaged file: the start reports the error
	}
	for _, l := range links[elf.DT_NEEDED] {
		if family, ok := sonames[l]; ok {
			return family, nil
		}
	}
	return unknown, nil
}

// Refuse returns an error if a program for which no family was given is linked to an MPI:
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

// Contradict returns an error if a program is linked to another MPI than the given one: its
// ranks would not meet. MPICH and Intel MPI have one binary interface, and a program that
// is linked to no MPI may load any.
func Contradict(given Family, program string) error {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil //nolint:nilerr // starting it says what is wrong
	}
	family, linked := Linked(path)
	if !linked || given.runs(family) {
		return nil
	}
	return fmt.Errorf("--mpi (mpi of an MPIJob) says %s, and %s is linked to %s: use %s, or auto, which examines the program", spelled[given], program, spelled[family], spelled[family])
}

// runs reports whether a program that is linked to a family runs as one of f.
func (f Family) runs(linked Family) bool {
	return !f.certain() || !linked.certain() || (f == OpenMPI) == (linked == OpenMPI)
}

// spelled has the families as an MPIJob names them.
var spelled = map[Family]string{MPICH: "MPICH", Intel: "Intel", OpenMPI: "OpenMPI"}

// Linked reports whether the program at a path is linked to an MPI, and to which: MPICH
// stands for Intel MPI, too.
func Linked(path string) (Family, bool) {
	f, err := detect(path)
	return f, err == nil && f.certain()
}

// openMPI is the name of Open MPI's library.
const openMPI = "libmpi.so.40"

// linkedOpenMPI returns the path of Open MPI's library in the directories that are stored
// in the program, or an empty text if there is none: then the dynamic loader searches the
// system's directories.
func linkedOpenMPI(path string) string {
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

// certain reports whether a program of the family is known to use MPI.
func (f Family) certain() bool { return f != None && f != Unsaid && f != unknown && f != Auto }
