//go:build rdmavm

package rdmavm

import (
	"debug/elf"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/plan"
)

// mpiOf names the MPI whose library the programs load: MPICH and Intel MPI have one binary interface.
var mpiOf = flag.String("rdma.mpi", "mpich", "TestMPI: the MPI that programs built for MPICH run on, mpich or intel")

// mpiCast is a cast with unmodified programs of others for MPICH, and an MPI.
type mpiCast struct{ *cast }

const built = "../../bin/"

func newMPICast(t *testing.T) mpiCast {
	t.Helper()
	c := mpiCast{newCast(t)}
	lib := built + "mpi/" + *mpiOf + "/lib/"
	programs := []string{
		built + "mpi/intel/bin/IMB-MPI1", built + "mpi/intel/bin/IMB-RMA", built + "rdmavm/mpi/usr/bin/NPmpich2",
		c.compile("../mpi/testdata/windows.c", "mpi-windows"),
		// Libraries that are loaded by name: Outrigger's, and libfabric, which Intel MPI's package lacks.
		built + "c/liboutrigger-fi.so", built + "c/liboutrigger-alloc.so", built + "c/liboutrigger-steps.so", built + "c/liboutrigger-check.so",
		built + "mpi/mpich/lib/mpich/libfabric.so.1",
	}
	// Debian's programs load the library by the name that Debian's MPICH gives it.
	library12, err := filepath.Abs(lib + "libmpi.so.12")
	if err == nil {
		err = os.Symlink(library12, filepath.Join(c.dir, "libmpich.so.12"))
	}
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := libraries([]string{
		c.dir, lib, built + "mpi/mpich/lib/mpich",
		built + "rdmavm/mpi/" + library, built + "rdmavm/root/" + library, built + "rdmavm/root/" + strings.TrimPrefix(library, "usr/"),
	}, programs...)
	if err != nil {
		t.Fatalf("%v; hack/rdmavm/mpi brings what this test needs", err)
	}
	c.files = slices.Concat(c.files, programs, loaded)
	return c
}

// compile builds a program for MPICH.
func (c mpiCast) compile(source, name string) string {
	c.t.Helper()
	out := filepath.Join(c.dir, name)
	args := []string{"-O1", "-o", out, source, "-I" + built + "mpi/mpich/include", "-L" + built + "mpi/mpich/lib", "-lmpi"}
	if said, err := exec.CommandContext(c.t.Context(), "gcc", args...).CombinedOutput(); err != nil {
		c.t.Fatalf("gcc: %v; hack/rdmavm/mpi brings what this test needs\n%s", err, said)
	}
	return out
}

// job adds a step with one rank per pod.
func (c mpiCast) job(s plan.Step) {
	c.t.Helper()
	s.Devices, s.MPI = granted, "auto"
	s.Env = append(s.Env, "LD_LIBRARY_PATH="+inMachine, "OUTRIGGER_MPI_REPORT=1")
	c.document(s, 1, func(d *bootstrap.Document) {
		required(&d.Tuning)
		d.Memory.ArenaBytes = 64 << 20
	})
}

// mpiProgram is a program with the output that its rank 0 prints if all is right.
type mpiProgram struct {
	name  string
	line  []string
	wants func(t *testing.T, step, said string)
}

// Lengths of the benchmarks' messages, on both sides of the limits between protocols.
const (
	lengthsFile = "lengths"
	lengths     = "1 256 8192 65536 262144"
	ofFloats    = "4 256 8192 65536 262144" // at least one float
	ofOneNumber = "4"
)

// benchmarks returns a program with benchmarks of the Intel MPI Benchmarks, each of which prints a
// table.
func benchmarks(name, program string, rows map[string]string) mpiProgram {
	line := []string{program, "-iter", "3", "-iter_policy", "off", "-warm_up", "off", "-msglen", inMachine + lengthsFile}
	if program == "IMB-RMA" {
		line = append(line, "-aggregate_mode", "non_aggregate")
	}
	return mpiProgram{name, slices.AppendSeq(line, maps.Keys(rows)), func(t *testing.T, step, said string) {
		for benchmark, want := range rows {
			_, table, _ := strings.Cut(said, "# Benchmarking "+benchmark+" ")
			table, _, _ = strings.Cut(table, "# Benchmarking ")
			var got []string
			for _, row := range tableRow.FindAllStringSubmatch(table, -1) {
				got = append(got, row[1])
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: the table of %s has rows of %q bytes, want %q", step, benchmark, got, want)
			}
		}
		if !strings.Contains(said, "# All processes entering MPI_Finalize") {
			t.Errorf("%s: it has not come to its end", step)
		}
	}}
}

// tableRow matches a row of a table: bytes, repetitions and the measured values.
var tableRow = regexp.MustCompile(`(?m)^ +(\d+) +3( +\d+\.\d+)+ *$`)

var mpiPrograms = []mpiProgram{
	benchmarks("imb", "IMB-MPI1", map[string]string{"PingPong": lengths, "Sendrecv": lengths, "Allreduce": ofFloats}),
	benchmarks("imb-rma", "IMB-RMA", map[string]string{"Unidir_put": lengths, "Unidir_get": lengths, "Accumulate": ofFloats, "Fetch_and_op": ofOneNumber, "Compare_and_swap": ofOneNumber}),
	// NetPIPE checks every byte here instead of the time.
	{"netpipe", []string{"NPmpich2", "-i", "-n", "2", "-u", "262145"}, func(t *testing.T, step, said string) {
		if n := strings.Count(said, "Integrity check passed"); n != 33 || strings.Contains(said, "ntegrity check failed") {
			t.Errorf("%s: %d lengths are right, want 33", step, n)
		}
	}},
	// No program of others checks the results of one-sided operations.
	{"windows", []string{"mpi-windows", "70000"}, func(t *testing.T, step, said string) {
		if !strings.Contains(said, "windows of 2 ranks are right") {
			t.Errorf("%s: not every number was checked", step)
		}
	}},
}

// TestMPI: programs that were built for MPICH without Outrigger run over RDMA between two
// machines. Buffers that libc allocates are copied, and the peer's device reads large buffers
// directly from the arena. The other machine reports the number of a killed rank.
func TestMPI(t *testing.T) {
	c := newMPICast(t)
	c.write(lengthsFile, []byte(strings.ReplaceAll(lengths, " ", "\n")+"\n"))
	const killed, inArena = "killed", "-arena"
	endless := []string{"IMB-MPI1", "Exchange", "-iter", "1000000", "-iter_policy", "off", "-time", "3600", "-msglog", "16:16"}
	c.job(plan.Step{Name: killed, Program: endless, Kill: 150, Status: -1})
	for _, p := range mpiPrograms {
		c.job(plan.Step{Name: p.name, Program: p.line})
		c.job(plan.Step{Name: p.name + inArena, Program: p.line, Env: []string{names.EnvMPIArena + "=on"}})
	}
	said := c.play("mpi", 9*time.Minute)
	for _, p := range mpiPrograms {
		p.wants(t, p.name, stepOf(t, said[0].Output, p.name))
		p.wants(t, p.name+inArena, stepOf(t, said[0].Output, p.name+inArena))
		copied, placed := mpiUseOf(t, said, p.name), mpiUseOf(t, said, p.name+inArena)
		if copied.inPlace != 0 || copied.copied == 0 {
			t.Errorf("%s: %.0f bytes in place, want all of them copied", p.name, copied.inPlace)
		}
		if placed.inPlace <= placed.copied || placed.reads == 0 || placed.reads < placed.gets {
			t.Errorf("%s: %.0f bytes in place, %.0f copied, %.0f messages by %.0f remote reads, want most bytes read by the device", p.name+inArena, placed.inPlace, placed.copied, placed.gets, placed.reads)
		}
	}
	for i, want := range []string{"outrigger: rank 0: the job has failed: rank 1 failed", "rank 1 was killed by SIGKILL"} {
		if !strings.Contains(stepOf(t, said[i].Output, killed), want) {
			t.Errorf("machine %d does not say %q of the rank that was killed", i, want)
		}
	}
}

// mpiUse has the counts of both machines in a step.
type mpiUse struct {
	remoteUse
	gets            float64 // number of messages that were read
	inPlace, copied float64 // number of bytes that ranks have sent and received
}

// mpiUseOf reads an mpiUse from the outputs of both machines; the devices' own counters must have
// increased.
func mpiUseOf(t *testing.T, said []Outcome, step string) (sum mpiUse) {
	t.Helper()
	for i, o := range said {
		part, used := stepOf(t, o.Output, step), useOf(t, o.Output, step)
		if used.sends == 0 || used.writes == 0 {
			t.Errorf("machine %d, %s: %.0f sends, %.0f remote writes", i, step, used.sends, used.writes)
		}
		if !regexp.MustCompile(`== step ` + step + `: ok, .*` + packets.String()).MatchString(o.Output) {
			t.Errorf("machine %d, %s: the device has counted no packets", i, step)
		}
		sum.sends, sum.writes, sum.reads = sum.sends+used.sends, sum.writes+used.writes, sum.reads+used.reads
		sum.gets += moved(t, part, "rendezvous get")
		sum.inPlace += figure(t, part, `bytes sent in place (\d+)`) + figure(t, part, `received in place (\d+)`)
		sum.copied += figure(t, part, `sent in place \d+, copied (\d+)`) + figure(t, part, `received in place \d+, copied (\d+)`)
	}
	t.Logf("%-16s %5.0f sends, %5.0f writes, %4.0f reads; %9.0f bytes in place, %9.0f copied", step, sum.sends, sum.writes, sum.reads, sum.inPlace, sum.copied)
	return sum
}

// libraries returns the given files and all libraries that they load, directly or indirectly,
// when they start. Each library is the file in the first of the folders that has it.
func libraries(folders []string, files ...string) ([]string, error) {
	var found []string
	seen := map[string]bool{}
	for _, f := range files {
		seen[filepath.Base(f)] = true
	}
	for queue := slices.Clone(files); len(queue) > 0; queue = queue[1:] {
		f, err := elf.Open(queue[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", queue[0], err)
		}
		names, err := f.ImportedLibraries()
		_ = f.Close() // the file was only read
		if err != nil {
			return nil, fmt.Errorf("%s: %w", queue[0], err)
		}
		for _, name := range names {
			if seen[name] {
				continue
			}
			seen[name] = true
			at := slices.IndexFunc(folders, func(dir string) bool {
				_, err := os.Stat(filepath.Join(dir, name))
				return err == nil
			})
			if at < 0 {
				return nil, fmt.Errorf("%s needs %s, which none of %q has", queue[0], name, folders)
			}
			found = append(found, filepath.Join(folders[at], name))
			queue = append(queue, found[len(found)-1])
		}
	}
	return found, nil
}
