package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mpiRuntime is a runtime like Trainer's own for MPI: nodes with an ssh server, and a
// launcher that is a node, too.
const mpiRuntime = `apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: mpi-distributed, labels: {trainer.kubeflow.org/framework: deepspeed}}
spec:
  mlPolicy:
    numNodes: 1
    mpi: {numProcPerNode: 1, mpiImplementation: OpenMPI, sshAuthMountPath: /home/mpiuser/.ssh, runLauncherAsNode: true}
  template:
    metadata: {labels: {team: b}}
    spec:
      network: {publishNotReadyAddresses: true}
      successPolicy: {operator: All, targetReplicatedJobs: [launcher]}
      replicatedJobs:
      - name: node
        template:
          spec:
            template:
              spec:
                securityContext: {fsGroup: 1000}
                containers:
                - name: node
                  image: runtime
                  env: [{name: KEPT, value: "1"}, {name: BOTH, value: runtime}]
                  command: [/usr/sbin/sshd]
                  args: [-De, -f, /home/mpiuser/.sshd_config]
                  readinessProbe: {tcpSocket: {port: 2222}}
      - name: launcher
        dependsOn: [{name: node, status: Ready}]
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            backoffLimit: 2
            template:
              spec:
                securityContext: {fsGroup: 1000}
                containers:
                - {name: node, image: runtime}
`

// trainJob is a job of mpiRuntime, with all fields of its trainer.
const trainJob = `apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tune, namespace: hpc, labels: {kueue.x-k8s.io/queue-name: gpus}}
spec:
  runtimeRef: {name: mpi-distributed, kind: ClusterTrainingRuntime, apiGroup: trainer.kubeflow.org}
  managedBy: trainer.kubeflow.org/trainjob-controller
  suspend: false
  trainer:
    image: tune:2
    command: [mpirun, --hostfile, /etc/mpi/hostfile]
    args: [-x, A=b, python, tune.py]
    env: [{name: BOTH, value: job}, {name: TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}]
    numNodes: 4
    numProcPerNode: 2
    resourcesPerNode: {limits: {cpu: "8", rdma/ib: "1"}}
---
`

// TestConvertTrainJob checks that the job's patches are applied to the runtime, that nodes
// and their slots become ranks, and that each field that is left out has a note.
func TestConvertTrainJob(t *testing.T) {
	text, notes, err := Convert([]byte(trainJob + mpiRuntime))
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: outrigger.dev/v1alpha1
kind: MPIJob
metadata:
  labels:
    kueue.x-k8s.io/queue-name: gpus
    team: b
  name: tune
  namespace: hpc
spec:
  devices:
  - count: 1
    resource: rdma/ib
  mpi: OpenMPI
  ranks: 8
  ranksPerPod: 2
  runPolicy:
    restartLimit: 2
  template:
    spec:
      containers:
      - command:
        - python
        - tune.py
        env:
        - name: KEPT
          value: "1"
        - name: BOTH
          value: job
        - name: TOKEN
          valueFrom:
            secretKeyRef:
              key: token
              name: hub
        - name: A
          value: b
        image: tune:2
        name: node
        resources:
          limits:
            cpu: "8"
      securityContext:
        fsGroup: 1000
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("converted (-want +got):\n%s", diff)
	}
	accepted(t, text)
	said := strings.Join(notes, "\n")
	for _, word := range []string{
		"sshAuthMountPath", "network of the runtime", "successPolicy of the runtime", "ssh server", "readinessProbe", "--hostfile /etc/mpi/hostfile of mpirun",
		"replicatedJob launcher of ClusterTrainingRuntime mpi-distributed", "backoffLimit is runPolicy.restartLimit", "rdma/ib to devices",
	} {
		if !strings.Contains(said, word) {
			t.Errorf("no line names %s:\n%s", word, said)
		}
	}
	if strings.Contains(said, "mpiReplicaSpecs") || strings.Contains(said, "left out") || strings.Contains(said, "not valid") {
		t.Error(said)
	}
}

// TestConvertTrainJobSizes checks that nodes and ranks of a node come from the job, or else
// from the runtime, as with Trainer.
func TestConvertTrainJobSizes(t *testing.T) {
	const asNode, nodes, procs = ", runLauncherAsNode: true", "    numNodes: 4\n", "    numProcPerNode: 2\n"
	for what, c := range map[string]struct {
		change        []string
		ranks, perPod int32
	}{
		"a launcher and nodes":           {[]string{asNode, ""}, 8, 2},
		"nodes of the runtime":           {[]string{asNode, "", nodes, "", "    numNodes: 1\n    mpi", "    numNodes: 3\n    mpi"}, 6, 2},
		"parallelism of the runtime":     {[]string{nodes, "", "          spec:\n            template:\n              spec:\n                securityContext: {fsGroup: 1000}\n                containers:\n                - name: node\n                  image", "          spec:\n            parallelism: 5\n            template:\n              spec:\n                securityContext: {fsGroup: 1000}\n                containers:\n                - name: node\n                  image"}, 12, 2},
		"a launcher and one node":        {[]string{nodes, "    numNodes: 1\n"}, 4, 2},
		"ranks of the runtime":           {[]string{procs, "", "numProcPerNode: 1,", "numProcPerNode: 3,"}, 12, 3},
		"GPUs of the job":                {[]string{procs, "", `cpu: "8"`, `nvidia.com/gpu: "8"`}, 32, 8},
		"one rank though there are GPUs": {[]string{procs, "    numProcPerNode: 1\n", `cpu: "8"`, `nvidia.com/gpu: "8"`}, 4, 1},
		"ranks of mpirun":                {[]string{"args: [-x", "args: [-n, '5', -x"}, 5, 2},
	} {
		text, _, err := Convert([]byte(strings.NewReplacer(c.change...).Replace(trainJob + mpiRuntime)))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if j := accepted(t, text); j.Spec.Ranks != c.ranks || j.Spec.RanksPerPod != c.perPod {
			t.Errorf("%s: %d ranks, %d a pod, want %d and %d", what, j.Spec.Ranks, j.Spec.RanksPerPod, c.ranks, c.perPod)
		}
	}
}

// launcherAlone returns a runtime without nodes.
func launcherAlone() string {
	from, to := strings.Index(mpiRuntime, "      - name: node\n"), strings.Index(mpiRuntime, "      - name: launcher\n")
	return mpiRuntime[:from] + mpiRuntime[to:]
}

// overrides and patches are a TrainJob's changes of pods, in the older field and in the
// newer one.
const (
	overrides = `  podTemplateOverrides:
  - targetJobs: [{name: node}, {name: launcher}]
    metadata: {labels: {pool: a}}
    spec:
      serviceAccountName: trainer
      nodeSelector: {gpu: "yes"}
      tolerations: [{key: gpu, operator: Exists}]
      volumes: [{name: data, emptyDir: {}}]
      containers: [{name: node, volumeMounts: [{name: data, mountPath: /data}]}]
`
	patches = `  runtimePatches:
  - manager: user
    trainingRuntimeSpec:
      template:
        metadata: {labels: {from: patch}}
        spec:
          replicatedJobs:
          - name: node
            template:
              spec:
                template:
                  metadata: {labels: {pool: a}}
                  spec:
                    serviceAccountName: trainer
                    nodeSelector: {gpu: "yes"}
                    tolerations: [{key: gpu, operator: Exists}]
                    volumes: [{name: data, emptyDir: {}}]
                    containers: [{name: node, volumeMounts: [{name: data, mountPath: /data}]}]
`
)

// patched returns the job with one of these, and with policies of the job and of its
// runtime.
func patched(patch string) string {
	return strings.NewReplacer("  suspend: false\n", "  suspend: true\n  activeDeadlineSeconds: 60\n  labels: {from: patch}\n"+patch,
		"trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue",
		"      network:", "      ttlSecondsAfterFinished: 5\n      failurePolicy: {maxRestarts: 3}\n      network:",
		"  template:\n    metadata: {labels: {team: b}}", "  podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 60}}\n  template:\n    metadata: {labels: {team: b}}",
	).Replace(trainJob + mpiRuntime)
}

// TestConvertTrainJobPatches checks that a job's changes of pods reach the template, by
// either field, and that the policies of job and runtime do.
func TestConvertTrainJobPatches(t *testing.T) {
	for what, patch := range map[string]string{"overrides": overrides, "patches": patches} {
		text, notes, err := Convert([]byte(patched(patch)))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		j := accepted(t, text)
		pod := &j.Spec.Template.Spec
		if pod.ServiceAccountName != "trainer" || pod.NodeSelector["gpu"] != "yes" || len(pod.Tolerations) != 1 || len(pod.Volumes) != 1 ||
			pod.Containers[0].VolumeMounts[0].MountPath != "/data" || j.Spec.Template.Labels["pool"] != "a" || j.Labels["from"] != "patch" || pod.Containers[0].Image != "tune:2" {
			t.Errorf("%s:\n%s", what, text)
		}
		p := &j.Spec.RunPolicy
		if !*p.Suspend || *p.ActiveDeadlineSeconds != 60 || *p.TTLSecondsAfterFinished != 5 || *p.RestartLimit != 3 || p.Gang != "SchedulerPlugins" || j.Spec.ManagedBy != "kueue.x-k8s.io/multikueue" {
			t.Errorf("%s:\n%s", what, text)
		}
		if said := strings.Join(notes, "\n"); !strings.Contains(said, "scheduleTimeoutSeconds") || !strings.Contains(said, "schedulerName") || !strings.Contains(said, "backoffLimit of") {
			t.Errorf("%s: %s", what, said)
		}
	}
	text, _, err := Convert([]byte(strings.Replace(trainJob, "numNodes: 4", "numNodes: 1", 1) + launcherAlone()))
	if err != nil {
		t.Fatal(err)
	}
	if j := accepted(t, text); j.Spec.Ranks != 2 {
		t.Errorf("a launcher alone has %d ranks, want 2", j.Spec.Ranks)
	}
}

// TestConvertTrainJobRefused checks that a runtime that is missing or starts no MPI
// program, and each field that cannot be converted, is an error that names it.
func TestConvertTrainJobRefused(t *testing.T) {
	torch := strings.NewReplacer("mpi: {", "torch: {").Replace(mpiRuntime)
	both := func(change ...string) string { return strings.NewReplacer(change...).Replace(trainJob + mpiRuntime) }
	const job = "      replicatedJobs:\n"
	for what, c := range map[string]struct{ text, want string }{
		"no runtime":            {trainJob, "ClusterTrainingRuntime mpi-distributed, which TrainJob tune is made from, is not in the file: add it after a line of three dashes (kubectl get clustertrainingruntime mpi-distributed -o yaml)"},
		"another runtime":       {both("metadata: {name: mpi-distributed", "metadata: {name: other"), "ClusterTrainingRuntime mpi-distributed, which"},
		"a runtime of its own":  {both("kind: ClusterTrainingRuntime, api", "kind: TrainingRuntime, api"), "kubectl get trainingruntime mpi-distributed -n hpc -o yaml"},
		"another namespace":     {both("kind: ClusterTrainingRuntime", "kind: TrainingRuntime", "metadata: {name: mpi-distributed", "metadata: {namespace: other, name: mpi-distributed"), "TrainingRuntime mpi-distributed, which"},
		"another group":         {both("apiGroup: trainer.kubeflow.org", "apiGroup: example.com"), "spec.runtimeRef.apiGroup is example.com"},
		"torch":                 {trainJob + torch, "ClusterTrainingRuntime mpi-distributed has the policy torch in spec.mlPolicy, and not mpi"},
		"plain":                 {both("    mpi: {numProcPerNode: 1, mpiImplementation: OpenMPI, sshAuthMountPath: /home/mpiuser/.ssh, runLauncherAsNode: true}\n", ""), "has no policy in spec.mlPolicy, and not mpi"},
		"an old version":        {both("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob", "apiVersion: kubeflow.org/v2alpha1\nkind: TrainJob"), "want trainer.kubeflow.org/v1alpha1"},
		"an initializer":        {both("  suspend: false", "  initializer: {dataset: {storageUri: s3://data}}"), "spec.initializer cannot be converted: download by an init container"},
		"a field of the job":    {both("  suspend: false", "  elastic: true"), "spec.elastic cannot be converted"},
		"of the trainer":        {both("    image: tune:2", "    func: {}"), "spec.trainer.func cannot be converted"},
		"of the policy":         {both("numProcPerNode: 1,", "numProcPerNode: 1, elastic: true,"), "spec.mlPolicy.mpi.elastic cannot be converted"},
		"of the JobSet":         {both(job, "      coordinator: {}\n"+job), "ClusterTrainingRuntime mpi-distributed: spec.template.spec.coordinator cannot be converted"},
		"rules of restarts":     {both(job, "      failurePolicy: {rules: []}\n"+job), "failurePolicy.rules cannot be converted"},
		"another replicatedJob": {both(job, job+"      - {name: dataset-initializer}\n"), "has dataset-initializer, which cannot be converted"},
		"replicas":              {both("      - name: node\n        template", "      - name: node\n        replicas: 2\n        template"), "replicatedJobs[node].replicas is 2, want 1"},
		"rules of a Job":        {both("            backoffLimit: 2", "            podFailurePolicy: {rules: []}"), "replicatedJobs[launcher].template.spec.podFailurePolicy cannot be converted"},
		"no launcher":           {both("      - name: launcher\n", "      - name: front\n"), "replicatedJobs has no launcher"},
		"nodes without any":     {trainJob + launcherAlone(), "numNodes is 4, and ClusterTrainingRuntime mpi-distributed has no replicatedJob node"},
		"ranks in words":        {both("    numProcPerNode: 2", "    numProcPerNode: auto"), "spec.trainer.numProcPerNode is auto, want "},
		"no ranks":              {both("    numProcPerNode: 2", "    numProcPerNode: 0"), "numProcPerNode is 0, want a number of ranks"},
		"a node in words":       {both("    mpi: {", "    mpi: {runLauncherAsNode: 'no', ", ", runLauncherAsNode: true", ""), "mlPolicy.mpi.runLauncherAsNode is no, want "},
		"nodes in words":        {both("    numNodes: 4", "    numNodes: '4'"), "spec.trainer.numNodes is 4, want "},
		"restarts in words":     {both("backoffLimit: 2", "backoffLimit: '2'"), "replicatedJobs[launcher].template.spec.backoffLimit is 2, want "},
		"no nodes":              {both("    numNodes: 4", "    numNodes: 0"), "numNodes is 0, want at least 1"},
		"a pod that is missing": {both("  suspend: false", "  podTemplateOverrides: [{targetJobs: [{name: trainer}], spec: {nodeSelector: {a: b}}}]"), "has no replicatedJobs trainer"},
		"a container, too":      {both("  suspend: false", "  runtimePatches: [{manager: a, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: x}]}}}}}]}}}}]"), "has no containers x"},
		"a gang":                {both("  template:\n    metadata: {labels: {team: b}}", "  podGroupPolicy: {other: {}}\n  template:\n    metadata: {labels: {team: b}}"), "spec.podGroupPolicy.other cannot be converted"},
	} {
		if converted, _, err := Convert([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q\n%s", what, err, c.want, converted)
		}
	}
}
