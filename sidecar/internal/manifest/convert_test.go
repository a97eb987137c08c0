package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pi is the first example of Kubeflow's mpi-operator, with more of its fields.
const pi = `apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi, namespace: hpc, labels: {team: a}, uid: "123"}
spec:
  slotsPerWorker: 2
  sshAuthMountPath: /home/mpiuser/.ssh
  mpiImplementation: OpenMPI
  runPolicy: {cleanPodPolicy: Running, ttlSecondsAfterFinished: 60, backoffLimit: 3}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - image: mpioperator/mpi-pi:openmpi
            name: mpi-launcher
            command: [mpirun]
            args: [-n, "6", --mca, btl, tcp, -x, "A=b", -x, HOME, --allow-run-as-root, /home/mpiuser/pi, --steps, "10"]
    Worker:
      replicas: 3
      template:
        spec:
          restartPolicy: OnFailure
          nodeSelector: {hpc: "yes"}
          containers:
          - image: mpioperator/mpi-pi:openmpi
            name: mpi-worker
            command: [/usr/sbin/sshd]
            args: [-De]
            resources: {limits: {cpu: 1, memory: 1Gi}}
`

// TestConvert: ranks, slots, program and variables are what mpirun would have
// started; everything else is taken over or told of.
func TestConvert(t *testing.T) {
	text, notes, err := Convert([]byte(pi))
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: outrigger.dev/v1alpha1
kind: MPIJob
metadata:
  labels:
    team: a
  name: pi
  namespace: hpc
spec:
  mpi: OpenMPI
  ranks: 6
  ranksPerPod: 2
  runPolicy:
    restartLimit: 3
    ttlSecondsAfterFinished: 60
  template:
    spec:
      containers:
      - command:
        - /home/mpiuser/pi
        - --steps
        - "10"
        env:
        - name: A
          value: b
        image: mpioperator/mpi-pi:openmpi
        name: mpi-worker
        resources:
          limits:
            cpu: 1
            memory: 1Gi
      nodeSelector:
        hpc: "yes"
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("converted (-want +got):\n%s", diff)
	}
	if _, err := Read(text); err != nil {
		t.Errorf("what was converted is refused: %v", err)
	}
	said := strings.Join(notes, "\n")
	for _, word := range []string{
		"--mca btl tcp of mpirun", "variable HOME", "--allow-run-as-root", "restartPolicy", "sshAuthMountPath",
		"cleanPodPolicy", "backoffLimit is runPolicy.restartLimit", "Launcher", "docs/mpi.md",
	} {
		if !strings.Contains(said, word) {
			t.Errorf("nobody is told of %s:\n%s", word, said)
		}
	}
}

// TestConvertOthers: what is no such job is refused; a command that nobody can
// read is left to a person.
func TestConvertOthers(t *testing.T) {
	for what, c := range map[string]struct{ text, want string }{
		"nothing":      {"", "want kubeflow.org/v2beta1"},
		"ours":         {"apiVersion: outrigger.dev/v1alpha1\nkind: MPIJob", "want kubeflow.org/v2beta1"},
		"no container": {"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {mpiReplicaSpecs: {Worker: {template: {spec: {}}}}}", "no container"},
		"no map":       {"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {mpiReplicaSpecs: {Worker: {template: {spec: {containers: [x]}}}}}", "is no container"},
		"no YAML":      {"a: [", "yaml"},
	} {
		if _, _, err := Convert([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	for old, want := range map[string]string{"mpiImplementation: Intel": "mpi: Intel\n", "mpiImplementation: MPICH": "mpi: MPICH\n", "": "mpi: Auto\n", "mpiImplementation: LAM": "mpi: Auto\n"} {
		text, notes, err := Convert([]byte(strings.Replace(pi, "mpiImplementation: OpenMPI", old, 1)))
		if err != nil || !strings.Contains(string(text), want) || strings.Contains(strings.Join(notes, "\n"), "LAM is not known") != strings.Contains(old, "LAM") {
			t.Errorf("%q: %v, %v\n%s", old, err, notes, text)
		}
	}
	script := strings.Replace(pi, "command: [mpirun]", "command: [bash, -c, mpirun -n 6 pi]", 1)
	text, notes, err := Convert([]byte(script))
	if err != nil || !strings.Contains(string(text), "ranks: 6\n") || !strings.Contains(strings.Join(notes, "\n"), "is no mpirun") {
		t.Errorf("%v, %v\n%s", err, notes, text)
	}
}
