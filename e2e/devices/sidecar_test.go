//go:build cluster

package devices

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// The real sidecar, which finds the agent only by the variable that comes with its device,
// logs its limit of locked memory and the reason. Whether the limit had to be raised depends
// on the runtime; without SYS_RESOURCE the agent of these tests cannot raise that of another
// user.
func TestSidecarAsksForMemlock(t *testing.T) {
	r := newRig(t, harness.Restricted)
	r.startAgent(newTree(t), agent{})
	r.allocatable(names.ResourceHCA, 4)
	r.makeDocument()
	p := &pod{devices: map[string]int64{names.ResourceHCA: 1}, user: noRights}
	p.change = func(s *corev1.PodSpec) {
		c := &s.InitContainers[0]
		c.Image = r.c.Image("outrigger-sidecar")
		c.Args = []string{"--bootstrap", filepath.Join(names.JobDir, names.BootstrapFile), "--pod=0", "--socket=/tmp/" + names.SocketFile}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "job", MountPath: names.JobDir}, {Name: "tmp", MountPath: "/tmp"}}
		s.Volumes = []corev1.Volume{{Name: "job", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "job"}},
		}}, {Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
	name := r.run(p)
	r.await("the sidecar's log", func() error {
		text, err := r.c.Client.CoreV1().Pods(r.namespace).GetLogs(name, &corev1.PodLogOptions{Container: "outrigger"}).DoRaw(t.Context())
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			raised := strings.Contains(line, "locked memory was not raised") && strings.Contains(line, "the agent needs CAP_SYS_RESOURCE")
			if strings.Contains(line, "mlx5_") && (raised || strings.Contains(line, "locked memory suffices")) {
				return nil
			}
		}
		return errors.New("no word of locked memory in:\n" + string(text))
	})
}

// makeDocument makes the document of a job of one rank. It has no certificates: the sidecar
// ends when it needs them, which is after its request to the agent.
func (r *rig) makeDocument() {
	r.t.Helper()
	d := &bootstrap.Document{
		Version: bootstrap.Version, Job: bootstrap.Job{Name: "devices", ID: "devices"}, Ranks: 1,
		Pods: []bootstrap.Pod{{Name: "pod-0", Address: "127.0.0.1:7077", Ranks: 1}},
		TLS:  bootstrap.TLS{CAFile: "/none/ca.crt", CertFile: "/none/pod.crt", KeyFile: "/none/pod.key"},
	}
	text, err := json.Marshal(d)
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = r.c.Client.CoreV1().ConfigMaps(r.namespace).Create(r.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "job"}, Data: map[string]string{names.BootstrapFile: string(text)},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
}
