//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// Folders and ports of a rank's pod: of the session socket, of the job's files, of peers and of health.
const (
	sharedDir  = "/run/outrigger"
	jobDir     = "/etc/outrigger"
	peerPort   = 7000
	healthPort = 7001
)

// A job of one rank on each node, made by hand with the shipped images: sidecars find each
// other by name across nodes, and the application, which has no device and no privilege,
// verifies its result.
func TestJobAcrossNodes(t *testing.T) {
	namespace := lab.Namespace(t, harness.Restricted)
	nodes := lab.Nodes()
	layOut(t, namespace, len(nodes))
	for rank, node := range nodes {
		create(t, namespace, rankPod(rank, node.Name, "npb", "-class", "S", "cg"))
	}
	for rank := range nodes {
		await(t, namespace, rankName(rank), ended)
	}
	if got := said(t, namespace, rankName(0), "rank"); !strings.Contains(got, "SUCCESSFUL") {
		t.Errorf("rank 0 says\n%s\nand no success", got)
	}
}

func rankName(rank int) string { return fmt.Sprintf("rank-%d", rank) }

// layOut makes the objects that a job's pods need: the document, the certificates, and the
// Service that gives them names.
func layOut(t *testing.T, namespace string, ranks int) {
	t.Helper()
	d := &bootstrap.Document{
		Version: bootstrap.Version, Ranks: ranks,
		Job:    bootstrap.Job{Name: "by hand", ID: namespace},
		TLS:    bootstrap.TLS{CAFile: jobDir + "/ca", CertFile: jobDir + "/cert%d", KeyFile: jobDir + "/key%d"},
		Memory: bootstrap.Memory{ArenaBytes: 16 << 20},
	}
	authority, err := pki.New(d.Job.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"ca": authority.CA()}
	for rank := range ranks {
		leaf, err := authority.Leaf(rank)
		if err != nil {
			t.Fatal(err)
		}
		files[fmt.Sprintf("cert%d", rank)], files[fmt.Sprintf("key%d", rank)] = leaf.Cert, leaf.Key
		d.Pods = append(d.Pods, bootstrap.Pod{
			Name: rankName(rank), FirstRank: rank, Ranks: 1,
			Address: fmt.Sprintf("%s.job.%s.svc:%d", rankName(rank), namespace, peerPort),
		})
	}
	if files[names.BootstrapFile], err = json.Marshal(d); err != nil {
		t.Fatal(err)
	}
	_, err = lab.Client.CoreV1().Secrets(namespace).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Data: files}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = lab.Client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"job": "job"},
			// Sidecars connect before their pods are ready.
			PublishNotReadyAddresses: true,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// rankPod returns one rank's pod: the sidecar, and the application next to it.
func rankPod(rank int, node string, command ...string) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	shared := corev1.VolumeMount{Name: "shared", MountPath: sharedDir}

	sidecar := probe("sidecar", "--bootstrap", jobDir+"/"+names.BootstrapFile, "--pod", fmt.Sprint(rank),
		"--socket", sharedDir+"/"+names.SocketFile, "--listen", fmt.Sprintf(":%d", peerPort),
		"--metrics", fmt.Sprintf(":%d", healthPort))
	sidecar.Image = lab.Image("outrigger-sidecar")
	sidecar.RestartPolicy = &always
	sidecar.VolumeMounts = []corev1.VolumeMount{shared, {Name: "job", MountPath: jobDir, ReadOnly: true}}
	// The application starts when the sidecar is ready for it.
	sidecar.StartupProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt(healthPort)}},
		PeriodSeconds: 1, FailureThreshold: 60,
	}

	application := probe("rank", command[1:]...)
	application.Image = lab.Image("outrigger-examples")
	application.Command = command[:1]
	application.VolumeMounts = []corev1.VolumeMount{shared}
	application.Env = []corev1.EnvVar{
		{Name: names.EnvSocket, Value: sharedDir + "/" + names.SocketFile},
		{Name: names.EnvRank, Value: fmt.Sprint(rank)},
	}

	p := pod(rankName(rank), node, application)
	p.Labels["job"] = "job"
	p.Spec.Hostname, p.Spec.Subdomain = rankName(rank), "job"
	p.Spec.InitContainers = []corev1.Container{sidecar}
	p.Spec.SecurityContext.FSGroup = new(int64(65532))
	p.Spec.Volumes = []corev1.Volume{
		{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "job", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "job", DefaultMode: new(int32(0o440))}}},
	}
	return p
}
