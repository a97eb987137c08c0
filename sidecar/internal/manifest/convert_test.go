package manifest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
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

// TestConvert checks that ranks, slots, program and variables are those that mpirun would
// have started, and that every other field is copied or has a note.
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
	accepted(t, text)
	said := strings.Join(notes, "\n")
	for _, word := range []string{
		"--mca btl tcp of mpirun", "variable HOME", "--allow-run-as-root", "restartPolicy", "sshAuthMountPath",
		"cleanPodPolicy", "backoffLimit is runPolicy.restartLimit", "Launcher", "docs/mpi.md",
	} {
		if !strings.Contains(said, word) {
			t.Errorf("no note about %s:\n%s", word, said)
		}
	}
}

// TestConvertOthers checks that other objects are refused, and that a command that cannot
// be parsed is left to the author.
func TestConvertOthers(t *testing.T) {
	for what, c := range map[string]struct{ text, want string }{
		"nothing":      {"", "want kubeflow.org/v1 or v2beta1"},
		"ours":         {"apiVersion: outrigger.dev/v1alpha1\nkind: MPIJob", "want kubeflow.org/v1 or v2beta1"},
		"a TrainJob":   {"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec: {runtimeRef: {name: mpi-runtime}}", "kubectl get clustertrainingruntime mpi-runtime -o yaml"},
		"no container": {"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {mpiReplicaSpecs: {Worker: {template: {spec: {}}}}}", "no container"},
		"no map":       {"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {mpiReplicaSpecs: {Worker: {template: {spec: {containers: [x]}}}}}", "is no container"},
		"no YAML":      {"a: [", "line 1: did not find"},
		"two jobs":     {pi + "---\n" + pi, "MPIJob pi and MPIJob pi: one job at a time"},
		"two mpiruns":  {strings.Replace(pi, "replicas: 1", "replicas: 2", 1), "Launcher.replicas is 2, want 1"},
		"a new field":  {strings.Replace(pi, "  slotsPerWorker: 2", "  slotsPerWorker: 2\n  retain: true", 1), "spec.retain cannot be converted"},
		"a new policy": {strings.Replace(pi, "cleanPodPolicy: Running", "elastic: {max: 3}", 1), "spec.runPolicy.elastic cannot be converted"},
		"a text":       {strings.Replace(pi, "slotsPerWorker: 2", "slotsPerWorker: '2'", 1), "spec.slotsPerWorker is 2, want a whole number"},
		"no bool":      {strings.Replace(pi, "  slotsPerWorker: 2", "  runLauncherAsWorker: 'yes'", 1), "spec.runLauncherAsWorker is yes, want "},
		"a number":     {strings.Replace(pi, "mpiImplementation: OpenMPI", "mpiImplementation: 4", 1), "spec.mpiImplementation is 4, want "},
		"pods in text": {strings.Replace(pi, "replicas: 3", "replicas: three", 1), "spec.mpiReplicaSpecs.Worker.replicas is three, want a whole number"},
		"a replica":    {strings.Replace(pi, "    Worker:\n      replicas: 3\n", "    Evaluator:\n      replicas: 3\n", 1), "spec.mpiReplicaSpecs.Evaluator cannot be converted"},
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
}

// line returns the first example with another command line of the launcher, converted: its
// spec and the notes.
func line(t *testing.T, launcher, more string) (map[string]any, string, error) {
	t.Helper()
	text := pi
	for from, to := range map[string]string{
		"command: [mpirun]\n": "command: " + launcher + "\n",
		"            args: [-n, \"6\", --mca, btl, tcp, -x, \"A=b\", -x, HOME, --allow-run-as-root, /home/mpiuser/pi, --steps, \"10\"]\n": "",
		"  slotsPerWorker: 2\n": "  slotsPerWorker: 2\n" + more,
	} {
		if !strings.Contains(text, from) {
			t.Fatalf("%q is not in the example", from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	converted, notes, err := Convert([]byte(text))
	if err != nil {
		return nil, "", err
	}
	accepted(t, converted)
	objects, err := split(converted)
	if err != nil {
		t.Fatal(err)
	}
	return tree(objects[0].tree, "spec"), strings.Join(notes, "\n"), nil
}

// TestConvertLines checks that a launcher's line gives ranks, ranks of a pod and the
// program, and that a script is kept.
func TestConvertLines(t *testing.T) {
	for _, c := range []struct {
		launcher, more string
		ranks, perPod  int64
		program        string
	}{
		{"[mpirun, pi]", "", 6, 2, "pi"},
		{"[mpirun, pi]", "  runLauncherAsWorker: true\n", 8, 2, "pi"},
		{"[mpirun, -np, '4', pi, -n, '9']", "", 4, 2, "pi -n 9"},
		{"[mpirun, -npernode, '1', pi]", "", 3, 1, "pi"},
		{"[mpirun, -pernode, pi]", "", 3, 1, "pi"},
		{"[mpiexec.hydra, -ppn, '4', -n, '7', -bootstrap, ssh, pi]", "", 7, 4, "pi"},
		{"[mpirun, -N, '2', --map-by=ppr:2:node, --cpus-per-proc, '2', --report-bindings, pi]", "", 6, 2, "pi"},
		{"[mpirun, -s, -n, '4', pi]", "", 4, 2, "pi"},
		{"[mpirun, -n, '4', -s, pi]", "", 4, 2, "pi"},
		{"[mpiexec.hydra, -s, '0,2-3', -n, '4', -s, all, pi]", "", 4, 2, "pi"},
		{"[mpirun, --set-env, A=b, --append-env, 'PATH[:]', /x, --unset-env, C, pi]", "", 6, 2, "pi"},
		{"[/bin/bash, -c, 'mpirun -n 6 pi']", "", 6, 2, "/bin/bash -c mpirun -n 6 pi"},
		{"[python, start.py]", "", 6, 2, "python start.py"},
	} {
		spec, notes, err := line(t, c.launcher, c.more)
		if err != nil {
			t.Errorf("%s: %v", c.launcher, err)
			continue
		}
		app, _ := list(tree(spec, "template", "spec"), "containers")[0].(map[string]any)
		program := strings.Join(words(list(app, "command")), " ")
		if ranks, perPod := whole(spec["ranks"], 0), whole(spec["ranksPerPod"], 0); ranks != c.ranks || perPod != c.perPod || program != c.program || app["args"] != nil {
			t.Errorf("%s: %d ranks, %d a pod, program %q, want %d, %d, %q", c.launcher, ranks, perPod, program, c.ranks, c.perPod, c.program)
		}
		script := strings.Contains(fmt.Sprint(app["env"]), "OUTRIGGER_MPIRUN")
		if kept := !strings.HasPrefix(c.launcher, "[mpi"); script != kept || strings.Contains(notes, "runs once, in the first pod") != kept {
			t.Errorf("%s: kept as a script: %v, want %v\n%s", c.launcher, script, kept, notes)
		}
	}
	for launcher, want := range map[string]string{
		"[mpirun, -n, '1', ocean, ':', -n, '3', air]": `":" in its line`,
		"[mpirun, --no-such-option, '2', pi]":         "option --no-such-option",
		"[mpirun, -n, many, pi]":                      "-n many",
		"[mpirun, --mca, pml]":                        "has 2 values",
	} {
		if _, _, err := line(t, launcher, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", launcher, err, want)
		}
	}
}

// TestConvertServer checks that the worker's fields for ssh and RDMA are dropped, each with
// a note, and that the launcher's fields for the program move to the pods.
func TestConvertServer(t *testing.T) {
	text := strings.NewReplacer(
		"            args: [-De]\n", "            args: [-De]\n            livenessProbe: {tcpSocket: {port: 22}}\n            ports: [{containerPort: 22}, {containerPort: 9000}]\n"+
			"            securityContext: {privileged: true, capabilities: {add: [IPC_LOCK, SYS_NICE]}}\n",
		"limits: {cpu: 1, memory: 1Gi}", "limits: {cpu: 1, rdma/ib: 2}",
		"          nodeSelector: {hpc: \"yes\"}\n", "          hostNetwork: true\n",
		"            name: mpi-launcher\n", "            name: mpi-launcher\n            workingDir: /data\n            env: [{name: HOME, value: /data}]\n"+
			"            volumeMounts: [{name: data, mountPath: /data}]\n",
		"      replicas: 1\n      template:\n        spec:\n", "      replicas: 1\n      template:\n        spec:\n          volumes: [{name: data, emptyDir: {}}]\n",
	).Replace(pi)
	converted, notes, err := Convert([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, converted)
	for _, want := range []string{"resource: rdma/ib", "count: 2", "workingDir: /data", "mountPath: /data", "name: HOME", "emptyDir: {}", "containerPort: 9000", "SYS_NICE"} {
		if !strings.Contains(string(converted), want) {
			t.Errorf("%s is lost:\n%s", want, converted)
		}
	}
	for _, gone := range []string{"livenessProbe", "containerPort: 22", "privileged", "IPC_LOCK", "hostNetwork", "sshd"} {
		if strings.Contains(string(converted), gone) {
			t.Errorf("%s is there:\n%s", gone, converted)
		}
	}
	said := strings.Join(notes, "\n")
	for _, word := range []string{"livenessProbe", "port 22", "privileged", "IPC_LOCK", "hostNetwork", "rdma/ib to devices", "workingDir /data", "env HOME", "volumes data"} {
		if !strings.Contains(said, word) {
			t.Errorf("no line names %s:\n%s", word, said)
		}
	}
	if strings.Contains(said, "variable HOME") {
		t.Error("a variable that moved is said to be dropped")
	}
}

// TestConvertWhole checks that every field of realistic jobs is in the converted job or in
// a note, and not in both.
func TestConvertWhole(t *testing.T) {
	for name, c := range map[string]struct {
		launcher, worker string
		kept, dropped    []string
	}{
		"training": {
			launcher: `containers: [{name: l, image: cnn, command: [mpirun, --allow-run-as-root, -np, "2", -bind-to, none, -map-by, slot, -x, NCCL_DEBUG=INFO, -x, LD_LIBRARY_PATH, -mca, btl, ^openib, python, cnn.py, --model=a]}]`,
			worker: `metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: cloud/rack}}
        spec:
          containers:
          - {name: w, image: cnn, resources: {limits: {nvidia.com/gpu: 1, rdma/hca_shared: 1}}, volumeMounts: [{name: shm, mountPath: /dev/shm}]}
          volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]`,
			kept: []string{
				"kueue.x-k8s.io/podset-required-topology: cloud/rack", "mountPath: /dev/shm", "medium: Memory", "sizeLimit: 8Gi", "name: NCCL_DEBUG\n          value: INFO",
				"nvidia.com/gpu: 1", "resource: rdma/hca_shared", "- python\n        - cnn.py\n        - --model=a\n",
			},
			dropped: []string{"--allow-run-as-root of", "-bind-to none of", "-map-by slot of", "variable LD_LIBRARY_PATH", "-mca btl ^openib of"},
		},
		"solver": {
			launcher: `initContainers: [{name: deck, image: git, command: [git, clone, x]}]
          containers:
          - {name: l, image: lmp, env: [{name: FOO, value: bar}], command: [mpirun, -n, "2", -x, FOO, -x, UCX_TLS=rc, --oversubscribe, --output-filename, /data/out, --timeout, "3600", lmp, -in, in.lj]}`,
			worker: `spec:
          containers:
          - {name: w, image: lmp, command: [/usr/sbin/sshd, -De], resources: {limits: {cpu: 4, memory: 2Gi, hugepages-2Mi: 1Gi}}}`,
			kept:    []string{"name: FOO\n          value: bar", "name: UCX_TLS\n          value: rc", "hugepages-2Mi: 1Gi", "cpu: 4", "- lmp\n        - -in\n        - in.lj\n"},
			dropped: []string{"initContainers of the launcher: add them to the template", "--oversubscribe of", "--output-filename /data/out of", "--timeout 3600 of", "an ssh server"},
		},
	} {
		text := "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: solver}\nspec:\n  mpiReplicaSpecs:\n    Launcher:\n      template:\n        spec:\n          " +
			c.launcher + "\n    Worker:\n      replicas: 2\n      template:\n        " + c.worker + "\n"
		converted, notes, err := Convert([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		accepted(t, converted)
		said := strings.Join(notes, "\n")
		for _, want := range c.kept {
			if !strings.Contains(string(converted), want) {
				t.Errorf("%s: %q is lost\n%s", name, want, converted)
			}
		}
		for _, want := range c.dropped {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no line has %q\n%s", name, want, said)
			}
		}
		for _, word := range []string{"slot", "openib", "sshd", "git", "/data/out", "3600", "LD_LIBRARY_PATH"} {
			if strings.Contains(string(converted), word) {
				t.Errorf("%s: %s is there\n%s", name, word, converted)
			}
		}
	}
}

// TestForeignJob checks that a job of another operator is recognised, and that the error
// names the command that converts it.
func TestForeignJob(t *testing.T) {
	if _, err := Read([]byte(pi)); err == nil || !strings.Contains(err.Error(), "outrigger convert") {
		t.Error(err)
	}
}

// TestConvertScriptHosts checks that a script's mpirun keeps no hostfile of mpi-operator,
// which does not exist here, and that hosts of its own are named.
func TestConvertScriptHosts(t *testing.T) {
	const line = `            command: [mpirun]
            args: [-n, "6", --mca, btl, tcp, -x, "A=b", -x, HOME, --allow-run-as-root, /home/mpiuser/pi, --steps, "10"]
`
	for script, want := range map[string]struct{ keeps, says string }{
		"mpirun -n 6 -hostfile /etc/mpi/hostfile ./pi":   {"mpirun -n 6 ./pi", "-hostfile /etc/mpi/hostfile is left out: the hosts are those of the job"},
		"mpirun --hostfile=/etc/mpi/hostfile -n 6 ./pi":  {"mpirun -n 6 ./pi", "--hostfile=/etc/mpi/hostfile is left out"},
		"mpiexec -f /etc/mpi/hostfile ./pi && echo done": {"mpiexec ./pi && echo done", "-f /etc/mpi/hostfile is left out"},
		"mpirun --host a:2,b:2 ./pi":                     {"mpirun --host a:2,b:2 ./pi", "remove --host and its value"},
		"mpirun -n 6 ./pi -f in.hosts":                   {"mpirun -n 6 ./pi -f in.hosts", ""},
	} {
		text, notes, err := Convert([]byte(strings.Replace(pi, line, "            command: [sh, -c, '"+script+"']\n", 1)))
		if err != nil {
			t.Errorf("%s: %v", script, err)
			continue
		}
		if !strings.Contains(string(text), "- "+want.keeps+"\n") {
			t.Errorf("%s: want %q in\n%s", script, want.keeps, text)
		}
		if all := strings.Join(notes, "\n"); want.says != "" && !strings.Contains(all, want.says) || want.says == "" && strings.Contains(all, "hosts are those of the job") {
			t.Errorf("%s: want %q of\n%s", script, want.says, all)
		}
	}
}

// accepted reads a converted file as `outrigger run -f` does, and fails if a part of it is
// refused.
func accepted(t *testing.T, converted []byte) *v1alpha1.MPIJob {
	t.Helper()
	f, err := Read(converted)
	if err != nil {
		t.Fatalf("what was converted is refused: %v\n%s", err, converted)
	}
	if _, err := f.Plan(&Machine{Node: "laptop"}); err != nil && !errors.Is(err, ErrSuspended) {
		t.Fatalf("what was converted cannot run: %v\n%s", err, converted)
	}
	return f.Job
}

// old is a job of kubeflow.org/v1, with all fields that differ from v2beta1.
const old = `apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: mnist, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}
spec:
  slotsPerWorker: 2
  cleanPodPolicy: All
  mainContainer: mpi
  runPolicy:
    cleanPodPolicy: Running
    activeDeadlineSeconds: 3600
    ttlSecondsAfterFinished: 60
    backoffLimit: 2
    suspend: true
    schedulingPolicy: {minAvailable: 3}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          nodeSelector: {zone: front}
          containers:
          - {name: proxy, image: proxy}
          - name: mpi
            image: mnist:cpu
            command: [mpirun]
            args: [-np, "4", --allow-run-as-root, -x, LD_LIBRARY_PATH, python, mnist.py]
    Worker:
      replicas: 2
      restartPolicy: Never
      template:
        spec:
          containers:
          - {name: proxy, image: proxy}
          - {name: mpi, image: mnist, resources: {limits: {cpu: "2", rdma/ib: "3"}}}
`

// TestConvertOld checks that a job of kubeflow.org/v1 is converted with its policies and
// the main container, and that each other field has a note.
func TestConvertOld(t *testing.T) {
	text, notes, err := Convert([]byte(old))
	if err != nil {
		t.Fatal(err)
	}
	j := accepted(t, text)
	c := j.Spec.Template.Spec.Containers[0]
	if j.Spec.Ranks != 4 || j.Spec.RanksPerPod != 2 || c.Name != "mpi" || c.Image != "mnist" || strings.Join(c.Command, " ") != "python mnist.py" || j.Spec.Devices[0].Count != 3 {
		t.Errorf("converted:\n%s", text)
	}
	p := &j.Spec.RunPolicy
	if *p.ActiveDeadlineSeconds != 3600 || *p.TTLSecondsAfterFinished != 60 || *p.RestartLimit != 2 || !*p.Suspend || j.Annotations != nil {
		t.Errorf("runPolicy:\n%s", text)
	}
	said := strings.Join(notes, "\n")
	for _, word := range []string{
		"cleanPodPolicy", "schedulingPolicy", "restartPolicy", "mainContainer", "containers of the launcher: proxy", "containers of the worker: proxy",
		"image of the launcher", "nodeSelector of the launcher", "backoffLimit is runPolicy.restartLimit", "variable LD_LIBRARY_PATH", "--allow-run-as-root",
	} {
		if !strings.Contains(said, word) {
			t.Errorf("no line names %s:\n%s", word, said)
		}
	}
}

// TestConvertLauncherAlone checks that a job with only a launcher has one pod, also if the
// launcher is a worker.
func TestConvertLauncherAlone(t *testing.T) {
	alone := pi[:strings.Index(pi, "    Worker:")]
	for _, more := range []string{"", "  runLauncherAsWorker: true\n"} {
		text, _, err := Convert([]byte(strings.NewReplacer("  slotsPerWorker: 2\n", "  slotsPerWorker: 2\n"+more, `-n, "6", `, "").Replace(alone)))
		if err != nil {
			t.Fatal(err)
		}
		if j := accepted(t, text); j.Spec.Ranks != 2 || j.Spec.RanksPerPod != 2 {
			t.Errorf("%q: %d ranks, %d a pod, want 2 and 2", more, j.Spec.Ranks, j.Spec.RanksPerPod)
		}
	}
}

// TestConvertLeavesOut checks that each other object of the file has a note.
func TestConvertLeavesOut(t *testing.T) {
	text, notes, err := Convert([]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: input}\n---\n" + pi))
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, text)
	if said := strings.Join(notes, "\n"); !strings.Contains(said, "left out: ConfigMap input") {
		t.Error(said)
	}
}
