package mpi

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
)

func TestParseFamily(t *testing.T) {
	for text, want := range map[string]Family{"": Unsaid, "none": None, "auto": Auto, "MPICH": MPICH, "Intel": Intel, "openmpi": OpenMPI, "OpenMPI": OpenMPI} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	if _, err := Parse("lam"); err == nil || !strings.Contains(err.Error(), "want auto") {
		t.Errorf("an unknown MPI: %v", err)
	}
}

// TestStarts checks that an mpirun below a wrapper is found, and that an argument of a
// program that is not an mpirun stays its own.
func TestStarts(t *testing.T) {
	t.Setenv(names.EnvMPIRun, "")
	for line, want := range map[string]bool{
		"mpirun -n 4 ./solver": true, "/opt/mpi/bin/mpiexec.hydra ./solver": true, "env A=1 mpirun -n 4 ./solver": true,
		"sh -c true": false, "sh -c mpirun-all": false, "env A=1 ./mpirun.log": false, "not-there mpirun": false,
	} {
		if got, err := Starts(strings.Fields(line)); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", line, got, err, want)
		}
	}
	for given, want := range map[string]bool{"0": false, "1": true} {
		t.Setenv(names.EnvMPIRun, given)
		if got, err := Starts([]string{"sh", "mpirun"}); got != want || err != nil {
			t.Errorf("%s=%s: %v, %v", names.EnvMPIRun, given, got, err)
		}
	}
}

// TestDetect checks that this test is linked to no MPI, statically or dynamically, and that
// a script may load any.
func TestDetect(t *testing.T) {
	script := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	if f, err := detect(script); f != unknown || err != nil {
		t.Errorf("a script: %q, %v", f, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if f, err := detect(self); f.certain() || err != nil {
		t.Errorf("this test: %q, %v", f, err)
	}
	if _, err := detect(script + "-none"); err == nil {
		t.Error("a program that is not there has an MPI")
	}
}

// TestContradiction checks that a program that is linked to one MPI does not run as one of
// another.
func TestContradiction(t *testing.T) {
	for _, c := range []struct {
		given, linked Family
		runs          bool
	}{
		{MPICH, OpenMPI, false},
		{Intel, OpenMPI, false},
		{OpenMPI, MPICH, false},
		{MPICH, MPICH, true},
		{Intel, MPICH, true},
		{OpenMPI, OpenMPI, true},
		{Auto, OpenMPI, true},
		{None, MPICH, true},
		{OpenMPI, unknown, true},
		{MPICH, unknown, true},
	} {
		if got := c.given.runs(c.linked); got != c.runs {
			t.Errorf("given %q, linked to %q: runs %v", c.given, c.linked, got)
		}
		if c.given.certain() && spelled[c.given] == "" {
			t.Errorf("%q has no name in an MPIJob", c.given)
		}
	}
	for _, program := range []string{"/bin/sh", "/no/such/program"} { // the first one may load any MPI, and the start of the second one reports its error
		if err := Contradict(MPICH, program); err != nil {
			t.Error(err)
		}
	}
}

// TestEnvironment checks that no MPI can use another transport than the provider.
func TestEnvironment(t *testing.T) {
	need := map[Family][]string{
		MPICH:   {"MPIR_CVAR_CH4_NETMOD=ofi", "MPIR_CVAR_PMI_VERSION=1", "FI_PROVIDER=outrigger", "FI_PROVIDER_PATH=/x"},
		Intel:   {"I_MPI_FABRICS=ofi", "FI_PROVIDER=outrigger"},
		OpenMPI: {"OMPI_MCA_pml=cm", "OMPI_MCA_mtl=ofi", "OMPI_MCA_btl=self,ofi", "FLUX_PMI_LIBRARY_PATH=/x/libpmi.so"},
	}
	for f, list := range need {
		for _, family := range []Family{f, unknown} {
			env := append(environment(family, "/x"), withoutMPIRun(family, "/x")...)
			for _, v := range list {
				if !slices.Contains(env, v) {
					t.Errorf("%s lacks %s", family, v)
				}
			}
		}
	}
	for _, v := range environment(OpenMPI, "/x") {
		if strings.HasPrefix(v, "MPIR_") {
			t.Errorf("Open MPI gets %s", v)
		}
	}
}

// TestLinkedOpenMPI checks that programs without a directory of Open MPI's library have
// none; make test-mpi has one that has it.
func TestLinkedOpenMPI(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{self, "/bin/sh", filepath.Join(t.TempDir(), "none")} {
		if library := linkedOpenMPI(path); library != "" {
			t.Errorf("%s: %s", path, library)
		}
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(names.EnvProvider, "")
	if _, err := Folder(filepath.Join(dir, "outrigger-launch")); err == nil || !strings.Contains(err.Error(), "make mpi") {
		t.Errorf("no provider: %v", err)
	}
	bin := filepath.Join(dir, "bin")
	for _, location := range []string{filepath.Join(dir, "lib", "outrigger"), filepath.Join(bin, "c"), bin} { // the last one is found
		if err := errors.Join(os.MkdirAll(location, 0o700), os.WriteFile(filepath.Join(location, providerFile), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if got, err := Folder(filepath.Join(bin, "outrigger-launch")); err != nil || got != location {
			t.Errorf("%q, %v, want %q", got, err, location)
		}
	}
	t.Setenv(names.EnvProvider, filepath.Join(bin, "c"))
	if got, err := Folder("/nowhere/x"); err != nil || got != filepath.Join(bin, "c") {
		t.Errorf("named: %q, %v", got, err)
	}
}

// sidecar answers each line with the next text, and further lines with the last one.
func sidecar(t *testing.T, answers ...string) management {
	t.Helper()
	path := filepath.Join(t.TempDir(), names.SocketFile+names.PMISuffix)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var b [256]byte
			_, _ = c.Read(b[:])
			_, _ = fmt.Fprint(c, answers[min(i, len(answers)-1)])
			_ = c.Close() // the answer is complete
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return management(path)
}

// TestJudge checks which ranks that ended with code 0 have not used Outrigger.
func TestJudge(t *testing.T) {
	for what, c := range map[string]struct {
		family         Family
		init, attached int
		want           string // "": no error
	}{
		"all is well":            {MPICH, 1, 1, ""},
		"a script's MPI":         {unknown, 1, 1, ""},
		"a script without":       {unknown, 0, 0, ""},
		"a script of ours":       {unknown, 0, 1, ""},
		"a script's other way":   {unknown, 1, 0, "another transport"},
		"another transport":      {Intel, 1, 0, "another transport"},
		"a job of its own":       {OpenMPI, 0, 0, "a job of its own"},
		"a job of its own on us": {OpenMPI, 0, 1, "a job of its own"},
	} {
		r := &Ranks{family: c.family, sidecar: sidecar(t, fmt.Sprintf("cmd=outrigger_rank rc=0 init=%d attached=%d\n", c.init, c.attached))}
		err := r.Judge(t.Context(), 3)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrUnused) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// TestJudgeVanished checks that a rank that ends with code 0 and without a detach has
// failed, because MPIs wait for it for ever.
func TestJudgeVanished(t *testing.T) {
	r := &Ranks{family: Intel, sidecar: sidecar(t, "cmd=outrigger_rank rc=0 init=1 attached=1 vanished=1\n")}
	if err := r.Judge(t.Context(), 3); !errors.Is(err, errNotFinalized) {
		t.Error(err)
	}
}

// TestFailed checks that the report of a failed rank waits for the answer, if there is one.
func TestFailed(t *testing.T) {
	if err := sidecar(t, "cmd=outrigger_failed rc=0\n").reportFailed(t.Context(), 3, 139); err != nil {
		t.Error(err)
	}
	start := time.Now()
	(&Ranks{sidecar: management(filepath.Join(t.TempDir(), "none"))}).Failed(3, 139)
	if time.Since(start) > reportTimeout {
		t.Error("without a sidecar the others waited")
	}
}

// TestDress checks that a rank inherits a connection on which it has been identified.
func TestDress(t *testing.T) {
	r := &Ranks{family: MPICH, dir: "/x", sidecar: sidecar(t, "cmd=initack rc=0\ncmd=set size=7\ncmd=set rank=3\ncmd=set debug=0\n")}
	r.where.known = &position{pod: 1, first: 2, layout: []int{2, 5}}
	env, files, err := r.Dress(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"PMI_FD=3", "PMI_RANK=3", "PMI_SIZE=7", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=5"} {
		if !slices.Contains(env, v) {
			t.Errorf("no %s in %q", v, env)
		}
	}
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	if err := files[0].Close(); err != nil {
		t.Fatal(err)
	}
	r.sidecar = sidecar(t, "")
	if _, _, err := r.Dress(t.Context(), 3); err == nil {
		t.Error("no answer was taken for one")
	}
}

// TestRankEnv checks that a rank has the variables that the launcher of its MPI sets, and a
// rank of a script those of all families.
func TestRankEnv(t *testing.T) {
	p := &position{pod: 1, first: 2, layout: []int{2, 3, 1}}
	pmi := []string{"PMI_RANK=4", "PMI_SIZE=6"}
	open := []string{"OMPI_COMM_WORLD_RANK=4", "OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_LOCAL_RANK=2", "OMPI_COMM_WORLD_LOCAL_SIZE=3", "OMPI_COMM_WORLD_NODE_RANK=2"}
	hydra := []string{"MPI_LOCALRANKID=2", "MPI_LOCALNRANKS=3"}
	for f, want := range map[Family][]string{
		OpenMPI: slices.Concat(pmi, open), MPICH: slices.Concat(pmi, hydra), Intel: slices.Concat(pmi, hydra), unknown: slices.Concat(pmi, open, hydra),
	} {
		if got := p.rankEnv(f, 4); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", f, got, want)
		}
	}
}

// TestPosition checks the answer with the position of a pod, and wrong answers.
func TestPosition(t *testing.T) {
	p, err := sidecar(t, "cmd=outrigger_job rc=0 name=kvs pod=2 machines=3 layout=2,0,3,1\n").position(t.Context())
	if err != nil || p.first != 2 || p.ranks() != 3 || p.world() != 6 || p.layoutText() != "2,0,3,1" || p.machines != 3 || p.name != "kvs" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, wrong := range []string{"pod=4 machines=1 layout=2,1", "pod=-1 machines=1 layout=2", "pod=0 machines=1 layout=2,x", "pod=0 layout=2", ""} {
		if p, err := sidecar(t, "cmd=outrigger_job rc=0 "+wrong+"\n").position(t.Context()); err == nil {
			t.Errorf("%q is %+v", wrong, p)
		}
	}
}

// TestNoticesAreForTheProgram checks that a program that is or calls an mpirun gets each
// notice once, until it has ended.
func TestNoticesAreForTheProgram(t *testing.T) {
	notices := make(chan os.Signal)
	s := &Starter{Notices: notices}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.01; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended, passed := make(chan struct{}), make(chan struct{})
	go func() { defer close(passed); s.forward(cmd.Process, ended) }()
	in := bufio.NewScanner(out)
	for in.Scan() && in.Text() == "ready" {
		notices <- unix.SIGUSR1
	}
	if in.Text() != "got" {
		t.Errorf("it said %q", in.Text())
	}
	_ = cmd.Wait() // the test checks the exit code
	close(ended)
	<-passed
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d", code)
	}
}
