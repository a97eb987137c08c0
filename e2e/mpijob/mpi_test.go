//go:build cluster

package mpijob

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

//go:embed testdata/hpccinf.txt
var hpccInput string

// stock returns a job of 4 ranks on two nodes in an image of packages of a distribution, which
// has no file of Outrigger and a read-only root.
func stock(ns, image string, mpi v1alpha1.MPI, command ...string) *v1alpha1.MPIJob {
	j := example(ns, image, "unused")
	j.Spec.MPI = mpi
	c := &j.Spec.Template.Spec.Containers[0]
	c.Image, c.Command = lab.Image(image), command
	c.SecurityContext.ReadOnlyRootFilesystem = new(true)
	return j
}

// script returns the command of a container that runs a script, which fails if the image has a
// file of Outrigger.
func script(text string) []string { return []string{"/bin/sh", "-c", isStock + text} }

// withScratch adds a writable folder to a job's application.
func withScratch(j *v1alpha1.MPIJob, at string) {
	pod := &j.Spec.Template.Spec
	name := "scratch" + strings.ReplaceAll(at, "/", "-")
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at})
}

// isStock fails a script if the image has a file of Outrigger.
const isStock = `[ ! -e /usr/local/bin ] && [ ! -e /usr/local/lib ] || { echo this is no stock image; exit 3; }
`

// hpcc runs the HPC Challenge as a rank; the first rank prints its output file.
const hpcc = `hpcc || exit
[ "$OUTRIGGER_RANK" != 0 ] || ` + show

const show = `while read -r line; do echo "$line"; done <hpccoutf.txt`

// challenge runs a script with the HPC Challenge on two nodes, in a restricted namespace, with
// matrices of a size, and checks its results.
func challenge(t *testing.T, image string, size int, text string, env ...corev1.EnvVar) {
	t.Helper()
	ns := restricted(t)
	data := strings.Replace(hpccInput, "600 ", fmt.Sprint(size, " "), 1)
	input := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "hpcc"}, Data: map[string]string{"hpccinf.txt": data}}
	if err := api.Create(t.Context(), input); err != nil {
		t.Fatal(err)
	}
	j := stock(ns, image, v1alpha1.MPIOpenMPI, script(text)...)
	withScratch(j, "/scratch")
	withScratch(j, "/tmp")
	pod := &j.Spec.Template.Spec
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "input", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: input.Name}},
	}})
	c := &pod.Containers[0]
	c.WorkingDir, c.Env = "/scratch", append(c.Env, env...)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "input", MountPath: "/scratch/hpccinf.txt", SubPath: "hpccinf.txt"})
	j = becomes(t, submit(t, j), v1alpha1.ConditionComplete)
	log := says(t, j)
	for _, want := range []string{"Success=1\n", "CommWorldProcs=4\n", "MPIRandomAccess_ErrorsFraction=0\n", fmt.Sprintf("HPL_N=%d\n", size)} {
		if !strings.Contains(log, want) {
			t.Errorf("the result has no %q\n%s", want, log)
		}
	}
	carried(t, j)
}

// says returns the output of the application of the first pod.
func says(t *testing.T, j *v1alpha1.MPIJob) string {
	t.Helper()
	return kubectl(t, "logs", "-n", j.Namespace, "-l", "batch.kubernetes.io/job-completion-index=0", "-c", "app", "--tail=-1")
}

// carried checks that a job of 4 ranks has completed on two nodes, and that its sidecars have
// carried messages between the nodes.
func carried(t *testing.T, j *v1alpha1.MPIJob) {
	t.Helper()
	pods := new(corev1.PodList)
	if err := api.List(t.Context(), pods, client.InNamespace(j.Namespace), client.MatchingLabels{names.LabelJob: j.Name}); err != nil {
		t.Fatal(err)
	}
	nodes := map[string]bool{}
	for i := range pods.Items {
		p := &pods.Items[i]
		nodes[p.Spec.NodeName] = true
		if sent := overTCP(t, p); sent < 1<<20 {
			t.Errorf("the sidecar of %s has sent %d bytes over tcp, want a MiB at least", p.Name, sent)
		}
	}
	if len(pods.Items) != 2 || len(nodes) != 2 {
		t.Errorf("%d pods ran on %v, want two on two nodes", len(pods.Items), nodes)
	}
	if s := j.Status; strings.Join(s.Transports, " ") != "tcp" || deref(s.Ranks.Succeeded) != 4 {
		t.Errorf("transports %v, want tcp alone; ranks %+v, want 4 that have ended well", s.Transports, s.Ranks)
	}
}

// overTCP returns how many bytes of its ranks' messages a sidecar has sent to other pods, by
// its termination message.
func overTCP(t *testing.T, p *corev1.Pod) (sent uint64) {
	t.Helper()
	for _, c := range p.Status.InitContainerStatuses {
		if c.Name != names.ContainerSidecar || c.State.Terminated == nil {
			continue
		}
		m, err := podlife.Parse([]byte(c.State.Terminated.Message))
		if err != nil {
			t.Fatalf("the last words of %s's sidecar: %v", p.Name, err)
		}
		for _, traffic := range m.Traffic {
			if traffic.Transport == "tcp" {
				sent += traffic.Bytes
			}
		}
	}
	return sent
}

// The HPC Challenge, with the Open MPI of Debian's packages, is right over four
// ranks on two nodes in a restricted namespace. Its image is read-only.
func TestStockMPI(t *testing.T) { challenge(t, "hpcc", 600, hpcc) }

// The same by a script with an mpirun, which starts its daemons on the nodes without ssh.
func TestStockMPIRun(t *testing.T) {
	t.Parallel()
	challenge(t, "hpcc", 200, "mpirun.openmpi -n 4 hpcc && "+show, corev1.EnvVar{Name: names.EnvMPIRun, Value: "1"})
}

// If each rank has succeeded as an MPI job of its own, the job has failed, and the status has
// the reason.
func TestStockMPIUnused(t *testing.T) {
	t.Parallel()
	j := becomes(t, submit(t, stock(restricted(t), "hpcc", v1alpha1.MPIMPICH, "/bin/sh", "-c", "exit 0")), v1alpha1.ConditionFailed)
	if f := j.Status.FirstFailure; f == nil || !strings.Contains(f.Message, "each ran as a job of its own") {
		t.Errorf("first failure %+v", f)
	}
}
