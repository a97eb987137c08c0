//go:build cluster

package mpijob

import (
	_ "embed"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

//go:embed testdata/hpccinf.txt
var hpccInput string

// stock is a job of 4 ranks over two nodes in the image of Debian's packages, in
// which nothing is Outrigger's.
func stock(ns, name string, mpi v1alpha1.MPI, script string) *v1alpha1.MPIJob {
	j := example(ns, name, "unused")
	j.Spec.MPI = mpi
	c := &j.Spec.Template.Spec.Containers[0]
	c.Image, c.Command = lab.Image("hpcc"), []string{"/bin/sh", "-c", script}
	return j
}

// isStock ends a script where something of Outrigger's is in the image.
const isStock = `[ ! -e /usr/local/bin ] && [ ! -e /usr/local/lib ] || { echo this is no stock image; exit 3; }
`

// show prints what the first rank has written.
const show = `while read -r line; do echo "$line"; done <hpccoutf.txt`

// challenge runs the HPC Challenge of Debian's packages on two nodes, in a restricted
// namespace and with a root that nobody can write to, and checks what it has found.
func challenge(t *testing.T, script string, env ...corev1.EnvVar) *v1alpha1.MPIJob {
	t.Helper()
	ns := restricted(t)
	input := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "hpcc"}, Data: map[string]string{"hpccinf.txt": hpccInput}}
	if err := api.Create(t.Context(), input); err != nil {
		t.Fatal(err)
	}
	j := stock(ns, "hpcc", v1alpha1.MPIOpenMPI, isStock+script)
	pod := &j.Spec.Template.Spec
	pod.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "input", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: input.Name}}}},
	}
	c := &pod.Containers[0]
	c.WorkingDir, c.Env = "/scratch", append(c.Env, env...)
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "scratch", MountPath: "/scratch"},
		{Name: "tmp", MountPath: "/tmp"},
		{Name: "input", MountPath: "/scratch/hpccinf.txt", SubPath: "hpccinf.txt"},
	}
	c.SecurityContext.ReadOnlyRootFilesystem = new(true)
	j = becomes(t, submit(t, j), v1alpha1.ConditionComplete)
	log := kubectl(t, "logs", "-n", ns, "-l", "batch.kubernetes.io/job-completion-index=0", "-c", "app", "--tail=-1")
	for _, want := range []string{"Success=1\n", "CommWorldProcs=4\n", "MPIRandomAccess_ErrorsFraction=0\n", "HPL_N=600\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("the result has no %q\n%s", want, log)
		}
	}
	return j
}

// The HPC Challenge, with the Open MPI of Debian's packages, is right over four
// ranks on two nodes in a restricted namespace. Nobody can write into its image.
func TestStockMPI(t *testing.T) {
	j := challenge(t, `hpcc || exit
[ "$OUTRIGGER_RANK" != 0 ] || `+show)
	pods := new(corev1.PodList)
	if err := api.List(t.Context(), pods, client.InNamespace(j.Namespace), client.MatchingLabels{names.LabelJob: j.Name}); err != nil {
		t.Fatal(err)
	}
	nodes := map[string]bool{}
	for _, p := range pods.Items {
		nodes[p.Spec.NodeName] = true
	}
	if len(pods.Items) != 2 || len(nodes) != 2 {
		t.Errorf("%d pods ran on %v, want two on two nodes", len(pods.Items), nodes)
	}
	if len(j.Status.Transports) != 1 || j.Status.Transports[0] != "tcp" {
		t.Errorf("transports %v, want tcp alone", j.Status.Transports)
	}
}

// The same by a script with an mpirun, which starts its daemons across the nodes
// without an ssh.
func TestStockMPIRun(t *testing.T) {
	challenge(t, "mpirun.openmpi -n 4 hpcc && "+show, corev1.EnvVar{Name: names.EnvMPIRun, Value: "1"})
}

// Ranks that have ended well, each as a job of its own, have failed, and the
// status says why.
func TestStockMPIUnused(t *testing.T) {
	j := becomes(t, submit(t, stock(restricted(t), "alone", v1alpha1.MPIMPICH, "exit 0")), v1alpha1.ConditionFailed)
	if f := j.Status.FirstFailure; f == nil || !strings.Contains(f.Message, "each ran as a job of its own") {
		t.Errorf("first failure %+v", f)
	}
}
