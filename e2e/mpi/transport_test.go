//go:build mpi

package mpi

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// setting is a user's selection of a job's transport, in one of the ways that the MPI supports.
type setting struct {
	env     []string // environment of the job
	options string   // options of the program's mpirun
	script  string   // shell script that runs the program, $P
	refused string   // text of the refusal; "": the job runs over Outrigger
}

// run runs a program over an MPI, by its mpirun if there are options. Data between the pods is
// encrypted. It checks that a refusal precedes the program's first output, and that otherwise the
// program's messages are sent by Outrigger.
func (s setting) run(t *testing.T, m implementation, mount, program string) {
	t.Helper()
	line := []string{program}
	switch {
	case s.options != "":
		line = append(append([]string{m.starter(t), "-n", "2"}, strings.Fields(s.options)...), program)
	case s.script != "":
		line = []string{"sh", "-c", s.script}
	}
	j := job{ranks: 2, pods: 2, mount: mount, flags: []string{"--encrypt", "--report"}, env: append(append([]string{"P=" + program}, m.env...), s.env...)}
	code, out := j.run(t, line...)
	switch {
	case s.refused == "" && (code != 0 || !strings.Contains(out, "first: 0 wrong over 2 ranks") || carried(out) < firstBytes):
		t.Errorf("exit code %d, %d bytes by Outrigger, want at least %d\n%s", code, carried(out), firstBytes, out)
	case s.refused != "" && (code == 0 || !strings.Contains(out, "was refused: its MPI took another transport: ") || !strings.Contains(out, s.refused)):
		t.Errorf("exit code %d, want a refusal that names %s\n%s", code, s.refused, out)
	case s.refused != "" && strings.Contains(out, "has begun"):
		t.Errorf("a rank had begun before it was refused\n%s", out)
	}
}

// firstBytes is the number of bytes of the messages of testdata/first.c between its two ranks.
const firstBytes = 2 * 1000 * 4

var eager = regexp.MustCompile(`(?m)^ +eager +\d+ +(\d+) B$`)

// carried returns the number of bytes of small messages in the report of a job.
func carried(out string) int {
	found := eager.FindStringSubmatch(out)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1]) // the text has only digits
	return n
}

// parameters writes a file of parameters, and returns its folder.
func parameters(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(path, "/"+name)
}

// TestTransport checks that in whatever way a user selects the transport of an MPI, the job runs over
// Outrigger or is refused before its first message with an error that names what to remove, and
// that settings that do not change the selection are accepted.
func TestTransport(t *testing.T) {
	others := []string{
		"FI_PROVIDER=tcp", "FI_PROVIDER_PATH=/nowhere", "OMPI_MCA_pml=ob1", "OMPI_MCA_mtl=^ofi", "OMPI_MCA_btl=self,tcp", "OMPI_MCA_mtl_ofi_provider_include=tcp",
		"MPIR_CVAR_CH4_NETMOD=ucx", "MPIR_CVAR_OFI_USE_PROVIDER=tcp", "I_MPI_FABRICS=shm", "I_MPI_OFI_PROVIDER=tcp", "PRTE_MCA_pml=ob1",
	}
	user := parameters(t, ".openmpi/mca-params.conf", "pml = ob1")
	openmpi := map[string]setting{
		"environment":                  {env: others},
		"environment, by mpirun":       {env: others, options: "--bind-to none"},
		"parameters of the user":       {env: []string{"HOME=" + user}},
		"these alone":                  {script: "unset OMPI_MCA_pml; HOME=" + user + " exec $P", refused: "remove pml = ob1 of " + user + "/.openmpi/mca-params.conf"},
		"no list of btls":              {script: "unset OMPI_MCA_btl; exec $P", refused: "by which its windows go"},
		"variable of a script":         {script: "OMPI_MCA_mtl=^ofi exec $P", refused: "remove OMPI_MCA_mtl=^ofi"},
		"accepted: algorithms":         {options: "--mca coll ^hcoll --mca coll_tuned_use_dynamic_rules 1"},
		"accepted: lists that have it": {script: "OMPI_MCA_pml=^ucx exec $P"},
	}
	hydra := map[string]setting{
		"environment":            {env: others},
		"environment, by mpirun": {env: others, options: "-prepend-rank"},
		"netmod":                 {options: "-genv MPIR_CVAR_CH4_NETMOD ucx", refused: "remove MPIR_CVAR_CH4_NETMOD=ucx"},
		"variable of a script":   {script: "FI_PROVIDER=^outrigger exec $P", refused: "remove FI_PROVIDER=^outrigger"},
		"provider of MPICH":      {options: "-genv MPIR_CVAR_OFI_USE_PROVIDER tcp"}, // libfabric offers no provider but Outrigger
		"accepted: no node":      {options: "-genv MPIR_CVAR_NOLOCAL 1"},
		"accepted: threads":      {script: "OMP_NUM_THREADS=2 MPIR_CVAR_CH4_NUM_VCIS=1 I_MPI_DEBUG=0 exec $P"},
	}
	fabrics := setting{options: "-genv I_MPI_FABRICS shm"} // MPICH does not read it
	provider := setting{script: "I_MPI_OFI_PROVIDER=tcp exec $P"}
	for _, m := range all(t) {
		program, settings := m.build(t, "first"), openmpi
		if m.name == "mpich" || m.name == "intel" {
			settings = hydra
			if m.name == "intel" {
				fabrics.refused, provider.refused = "remove I_MPI_FABRICS=shm", "remove I_MPI_OFI_PROVIDER=tcp"
			}
			hydra["fabrics of Intel MPI"], hydra["provider of Intel MPI"] = fabrics, provider
		}
		for what, s := range settings {
			t.Run(m.name+"/"+what, func(t *testing.T) { s.run(t, m, "", program) })
		}
	}
}

// TestTransportByFile does the same for files of parameters of Open MPI: those that mpirun reads, and
// that of the installation, which overrides the environment.
func TestTransportByFile(t *testing.T) {
	four, five := openmpi4(t), openmpi5(t)
	program := four.build(t, "first")
	const installed = "/etc/openmpi"
	for override, refused := range map[string]string{
		"pml = ob1":                   "remove pml = ob1 of " + installed,
		"btl = self,tcp":              "btl self,tcp instead of self,ofi, by which its windows go; remove btl = self,tcp of " + installed,
		"btl = ^openib":               "remove btl = ^openib of " + installed,
		"btl = self,ofi\nosc = pt2pt": "",
	} {
		t.Run(override, func(t *testing.T) {
			etc := parameters(t, "openmpi-mca-params-override.conf", override)
			setting{refused: refused}.run(t, four, "--bind "+etc+" "+installed, program)
		})
	}
	tune := filepath.Join(parameters(t, "tune", "--mca pml ob1"), "tune")
	t.Run("openmpi4/tune", func(t *testing.T) { setting{options: "--tune " + tune}.run(t, four, "", program) }) // the environment overrides the file
	t.Run("openmpi4/am", func(t *testing.T) {
		am := filepath.Join(parameters(t, "am", "pml = ob1"), "am")
		setting{options: "-am " + am}.run(t, four, "", program) // as above
	})
	t.Run("openmpi5/tune", func(t *testing.T) {
		setting{options: "--tune " + tune, refused: "remove OMPI_MCA_pml=ob1"}.run(t, five, "", five.build(t, "first"))
	})
}

// TestTransportRequired checks that a job is also refused before its first message if its document
// requires a transport and encryption.
func TestTransportRequired(t *testing.T) {
	options := map[string]string{"mpich": "-genv FI_PROVIDER tcp", "intel": "-genv FI_PROVIDER tcp", "openmpi4": "--mca pml ob1", "openmpi5": "--mca pml ob1"}
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program := m.build(t, "first")
			j := job{file: "testdata/required.yaml", env: m.env}
			if out := j.mustRun(t, "first: 0 wrong over 2 ranks", program); !strings.Contains(out, "has begun") {
				t.Error(out)
			}
			line := append(append([]string{m.starter(t), "-n", "2"}, strings.Fields(options[m.name])...), program)
			if code, out := j.run(t, line...); code == 0 || !strings.Contains(out, "was refused: its MPI took another transport: ") || strings.Contains(out, "has begun") {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}
