package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// trial is the result of `outrigger run -f`.
type trial struct {
	code           int
	stdout, stderr string
	job            v1alpha1.MPIJob    // with its status, if it was written
	doc            bootstrap.Document // of the last attempt, if there was one
}

// example reads a manifest of docs/examples and changes it: from, to, ...
func example(t *testing.T, name string, changes ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../docs/examples", name))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(string(text), changes[i]) {
			t.Fatalf("%q is not in %s", changes[i], name)
		}
	}
	return strings.NewReplacer(changes...).Replace(string(text))
}

// apply runs a manifest, which it gives to standard input.
func apply(t *testing.T, manifest string, args ...string) *trial {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), jobTime)
	defer cancel()
	dir, err := os.MkdirTemp("", "e2e-") //nolint:usetesting // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	status := filepath.Join(dir, "status.yaml")
	before, after := args, []string(nil)
	for i, a := range args {
		if a == "--" {
			before, after = args[:i], args[i:]
			break
		}
	}
	all := append(append([]string{"run", "-f", "-", "--dir", dir, "--status", status}, before...), after...)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "outrigger"), all...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(manifest), &out, &errOut
	err = cmd.Run()
	var x *exec.ExitError
	if err != nil && !errors.As(err, &x) {
		t.Fatal(err)
	}
	r := &trial{code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errOut.String()}
	if raw, err := os.ReadFile(status); err == nil {
		if err := yaml.UnmarshalStrict(raw, &r.job); err != nil {
			t.Fatalf("status: %v\n%s", err, raw)
		}
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "bootstrap.json")); err == nil {
		d, err := bootstrap.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		r.doc = *d
	}
	return r
}

// ends checks the exit code, the one condition, and texts of the output.
func (r *trial) ends(t *testing.T, code int, condition, reason string, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	c := r.job.Status.Conditions
	if len(c) != 1 || c[0].Type != condition || c[0].Reason != reason {
		t.Errorf("conditions %+v, want %s for %s", c, condition, reason)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			t.Errorf("nothing says %q", text)
		}
	}
	if t.Failed() {
		t.Fatalf("output:\n%s%s", r.stdout, r.stderr)
	}
}

// TestExamplesOfTheDocument checks that the manifests of docs/examples run here unchanged.
func TestExamplesOfTheDocument(t *testing.T) {
	r := apply(t, example(t, "cg.yaml"))
	r.ends(t, 0, v1alpha1.ConditionComplete, "RanksSucceeded", "VERIFICATION SUCCESSFUL", "/usr/local/bin/npb is not on this machine: "+filepath.Join(bin, "npb")+" is run",
		"outrigger: ignored, no containers here: the program is this machine's: container.image\n")
	if s := r.job.Status; *s.Ranks.Succeeded != 4 || len(s.Transports) != 1 || s.Transports[0] != "node" || s.FirstFailure != nil {
		t.Errorf("status %+v", s)
	}

	r = apply(t, example(t, "ring.yaml"), "--quiet-ignored")
	r.ends(t, 0, v1alpha1.ConditionComplete, "RanksSucceeded", "50 rounds of 65536 bytes over 3 ranks: every byte right")
	if d := r.doc; len(d.Pods) != 2 || d.Pods[0].Ranks != 2 || d.Pods[1].Ranks != 1 || d.Tuning.Encrypt != "tls" || d.Tuning.EagerBytes != 4096 || d.Memory.ArenaBytes != 64<<20 {
		t.Errorf("document %+v", d)
	}
	if strings.Contains(r.stderr, "ignored") {
		t.Errorf("not quiet:\n%s", r.stderr)
	}

	r = apply(t, example(t, "restart.yaml"))
	r.ends(t, 0, v1alpha1.ConditionComplete, "RanksSucceeded", "rank 1 (pod 1) exited with code 3: restart 1 of at most 1", "every byte right")
	if s := r.job.Status; *s.Restarts != 1 || s.FirstFailure == nil || *s.FirstFailure.Attempt != 0 || s.FirstFailure.Pod != "restart-0-1" || r.doc.Pods[0].Name != "restart-1-0" {
		t.Errorf("status %+v, document %+v", s, r.doc)
	}
}

// TestFailuresOfManifests checks that exit code and status have the first failure.
func TestFailuresOfManifests(t *testing.T) {
	r := apply(t, example(t, "restart.yaml", "restartLimit: 1", "restartLimit: 0"))
	r.ends(t, 3, v1alpha1.ConditionFailed, "RankExited", "firstFailure:\n", "  reason: RankExited\n", "outrigger: job failed: rank 1 (pod 1) exited with code 3")
	if f := r.job.Status.FirstFailure; *f.Rank != 1 || *f.ExitCode != 3 || f.Pod != "restart-0-1" || f.Node == "" {
		t.Errorf("first failure %+v", f)
	}

	r = apply(t, example(t, "restart.yaml", "$(ATTEMPT)000", "0"))
	r.ends(t, 3, v1alpha1.ConditionFailed, "RankExited", "restart 1 of at most 1")
	if s := r.job.Status; *s.Restarts != 1 || *s.FirstFailure.Attempt != 1 || !strings.HasSuffix(s.Conditions[0].Message, "(after 1 restarts, the limit)") {
		t.Errorf("status %+v", s)
	}

	r = apply(t, example(t, "ring.yaml", "type: TCP", "type: RDMA", "  template:", "  devices: [{resource: outrigger.dev/hca}]\n  runPolicy: {restartLimit: 5}\n  template:"))
	r.ends(t, 78, v1alpha1.ConditionFailed, "TransportMissing", "the job requires a transport that this sidecar does not have")
	if r.job.Status.Restarts != nil {
		t.Error("started again, which could not help")
	}

	r = apply(t, example(t, "cg.yaml", "activeDeadlineSeconds: 600", "activeDeadlineSeconds: 1"), "--", "/bin/sleep", "1000")
	r.ends(t, 124, v1alpha1.ConditionFailed, "DeadlineExceeded", "job failed: not finished within 1 s")

	r = apply(t, example(t, "cg.yaml", "/usr/local/bin/npb", "/usr/local/bin/no-such-program"))
	if r.code != 127 || !strings.Contains(r.stderr, "program /usr/local/bin/no-such-program is not on this machine, and no no-such-program is next to outrigger or in PATH") {
		t.Errorf("%d, %s", r.code, r.stderr)
	}
	r.ends(t, 127, v1alpha1.ConditionFailed, "CannotStart", "no-such-program")
}

// TestContainersThatAreRanks checks launchMode Container: one rank in each pod, with the
// command of the container.
func TestContainersThatAreRanks(t *testing.T) {
	text := example(t, "ring.yaml", "ranksPerPod: 2", "launchMode: Container")
	r := apply(t, text)
	r.ends(t, 0, v1alpha1.ConditionComplete, "RanksSucceeded", "over 3 ranks: every byte right")
	if len(r.doc.Pods) != 3 {
		t.Errorf("%d pods", len(r.doc.Pods))
	}
	r = apply(t, strings.Replace(text, "command: [/usr/local/bin/ring]", "", 1))
	if r.code != 1 || !strings.Contains(r.stderr, "the entry point of its image outrigger.dev/outrigger-examples:dev cannot be known here") {
		t.Errorf("%d, %s", r.code, r.stderr)
	}
}

// TestMPIOfAManifest checks that the launcher gets the job's MPI, and sets the variables of
// every MPI for a script. Programs with an MPI are in e2e/mpi.
func TestMPIOfAManifest(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("OUTRIGGER_PROVIDER_PATH", dir)
	text := example(t, "ring.yaml", "ranksPerPod: 2", "ranksPerPod: 2\n  mpi: OpenMPI", "command: [/usr/local/bin/ring]", "command: [/bin/sh, -c]",
		`args: ["-rounds=$(ROUNDS)", "-bytes=65536"]`, `args: ["echo rank $PMI_RANK of $PMI_SIZE over $FI_PROVIDER, $OMPI_MCA_pml"]`)
	r := apply(t, text)
	if r.code == 0 || !strings.Contains(r.stderr, "liboutrigger-fi.so, which MPI programs need, is not in") {
		t.Errorf("without a provider: %d, %s", r.code, r.stderr)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "liboutrigger-fi.so"), nil, 0o600), os.WriteFile(filepath.Join(dir, "liboutrigger-check.so"), nil, 0o600)); err != nil { // no MPI loads them
		t.Fatal(err)
	}
	if r = apply(t, text); r.code == 0 || !strings.Contains(r.stderr, "each ran as a job of its own") {
		t.Errorf("a script in the place of an Open MPI program: %d, %s", r.code, r.stderr)
	}
	r = apply(t, strings.Replace(text, "mpi: OpenMPI", "mpi: Auto", 1), "--no-prefix")
	r.ends(t, 0, v1alpha1.ConditionComplete, "RanksSucceeded", "rank 0 of 3 over outrigger, cm\n", "rank 2 of 3 over outrigger, cm\n")
	if strings.Contains(r.stderr, "spec.mpi") {
		t.Errorf("the MPI is ignored:\n%s", r.stderr)
	}
	if r = apply(t, text, "--mpi", "intel"); r.code == 0 || !strings.Contains(r.stderr, "--mpi and -f") {
		t.Errorf("two words about the MPI: %d, %s", r.code, r.stderr)
	}
}

// TestEnvironmentOfAPod checks that every rank has the variables of its own pod, and the
// working directory if it exists here.
func TestEnvironmentOfAPod(t *testing.T) {
	dir := t.TempDir()
	text := example(t, "ring.yaml", "command: [/usr/local/bin/ring]", "workingDir: "+dir+"\n        command: [/bin/sh, -c]",
		`args: ["-rounds=$(ROUNDS)", "-bytes=65536"]`, `args: ["echo pod $(OUTRIGGER_POD) rank $OUTRIGGER_RANK rounds $ROUNDS $$HOME waits $OUTRIGGER_WAIT in $PWD"]`)
	r := apply(t, text, "--quiet-ignored", "--no-prefix")
	r.ends(t, 0, v1alpha1.ConditionComplete, "RanksSucceeded")
	home := os.Getenv("HOME")
	for pod, ranks := range map[string][]string{"0": {"0", "1"}, "1": {"2"}} {
		for _, rank := range ranks {
			want := "pod " + pod + " rank " + rank + " rounds 50 " + home + " waits block in " + dir + "\n"
			if !strings.Contains(r.stdout, want) {
				t.Errorf("no line %q in\n%s", want, r.stdout)
			}
		}
	}
}

// TestDryRun checks that --dry-run prints a valid job document and starts nothing.
func TestDryRun(t *testing.T) {
	for flag, address := range map[string]string{"--dry-run": "127.0.0.1:20001", "--dry-run=cluster": "ring-0-1.ring-ranks.default.svc:7077"} {
		r := apply(t, example(t, "ring.yaml"), flag)
		d, err := bootstrap.Parse([]byte(r.stdout))
		if r.code != 0 || err != nil {
			t.Fatalf("%s: %d, %v\n%s%s", flag, r.code, err, r.stdout, r.stderr)
		}
		if d.Pods[1].Address != address || d.Pods[1].FirstRank != 2 || d.Tuning.Encrypt != "tls" || d.Job.Name != "default/ring" {
			t.Errorf("%s: %+v", flag, d)
		}
		if want := "rank 2 in pod 1 would run: OUTRIGGER_POD=1 ROUNDS=50 OUTRIGGER_WAIT=block JOB_COMPLETION_INDEX=1 " + filepath.Join(bin, "ring") + " -rounds=50 -bytes=65536\n"; flag == "--dry-run" && !strings.Contains(r.stderr, want) {
			t.Errorf("no %q in\n%s", want, r.stderr)
		}
		if r.job.Name != "" || r.doc.Ranks != 0 {
			t.Errorf("%s has run the job", flag)
		}
	}
}

// TestFlagsThatContradictTheManifest checks that flags that repeat fields of a manifest are
// refused.
func TestFlagsThatContradictTheManifest(t *testing.T) {
	text := example(t, "cg.yaml")
	for flag, want := range map[string]string{
		"--ranks=8": "--ranks and -f: the manifest has a field for it", "--encrypt": "--encrypt and -f", "--timeout=5s": "--timeout and -f",
		"--dry-run=maybe": "--dry-run=maybe: want local or cluster",
	} {
		if r := apply(t, text, flag); r.code != 1 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %d, %s", flag, r.code, r.stderr)
		}
	}
	out, err := exec.Command(filepath.Join(bin, "outrigger"), "run", "--dry-run", "--", "/bin/true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--dry-run needs a manifest: -f FILE") {
		t.Errorf("%v, %s", err, out)
	}
	if r := apply(t, strings.Replace(text, "ranks: 4", "ranks: 4\n  rank: 4", 1)); r.code != 1 || !strings.Contains(r.stderr, `outrigger: -: MPIJob cg: line 10: unknown field "spec.rank": is ranks meant?`) {
		t.Errorf("%d, %s", r.code, r.stderr)
	}
}
