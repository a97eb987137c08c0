//go:build cluster

package mpijob

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// A pod of another job, and a process that knows the job's ID but not its key, can neither
// join nor read nor stop the job, which continues.
func TestStrangers(t *testing.T) {
	theirs, ours := restricted(t), restricted(t)
	victim := submit(t, example(theirs, "victim", "ring", "-rounds", "600", "-pause", "50ms"))
	other := submit(t, example(ours, "victim", "ring", "-rounds", "600", "-pause", "50ms"))
	becomes(t, victim, v1alpha1.ConditionRunning)
	becomes(t, other, v1alpha1.ConditionRunning)

	stranger := intruder(t, ours, podOf(t, victim, 0).Status.PodIP, map[string]pki.Pair{
		"forged":  forged(t, identity(t, victim)),
		"foreign": leaf(t, identity(t, other)),
		"own":     leaf(t, identity(t, victim)), // what a sidecar of the job has is taken: the others are not refused for nothing
	})
	said := result(t, stranger)
	for _, try := range []string{
		"garbage", "silence", "ticket", "anonymous", "foreign", "forged",
		"POST/debug/break/1", "GET/debug/flight", "GET/debug/pprof/", "POST/report", "DELETE/metrics",
	} {
		if !strings.Contains(said, try+" refused: ") {
			t.Errorf("%s is not refused", try)
		}
	}
	if !strings.Contains(said, "own taken") {
		t.Error("a sidecar of the job would be refused too")
	}
	if t.Failed() {
		t.Logf("the stranger says\n%s", said)
	}

	becomes(t, victim, v1alpha1.ConditionComplete)
	becomes(t, other, v1alpha1.ConditionComplete)
	log := kubectl(t, "logs", "-n", theirs, "-l", "batch.kubernetes.io/job-completion-index=0", "-c", "outrigger", "--tail=-1")
	for _, cause := range []string{
		"neither TLS nor a data connection", "no byte arrived", "unknown, used or expired ticket",
		"didn't provide a certificate", "signed by unknown authority",
	} {
		if !strings.Contains(log, cause) {
			t.Errorf("the sidecar does not say %q:\n%s", cause, log)
		}
	}
}

// A job's pods have no more rights at the API server than other pods: they can read and change
// no other job, and cannot read the Secrets of their own namespace.
func TestNoPowerOverTheAPI(t *testing.T) {
	theirs, ours := restricted(t), restricted(t)
	for _, ask := range []string{
		"delete mpijobs.outrigger.dev -n " + theirs, "patch mpijobs.outrigger.dev -n " + theirs, "get secrets -n " + theirs, "get configmaps -n " + theirs,
		"create pods -n " + theirs, "create pods --subresource=exec -n " + theirs, "get pods --subresource=log -n " + theirs,
		"get secrets -n " + ours, "delete mpijobs.outrigger.dev -n " + ours,
	} {
		args := append([]string{"auth", "can-i", "--as=system:serviceaccount:" + ours + ":default"}, strings.Fields(ask)...)
		out, err := lab.Kubectl(t.Context(), args...).Output()
		if strings.TrimSpace(string(out)) != "no" { // and it ends with 1
			t.Errorf("can a pod of another job %s? %s%v", ask, out, err)
		}
	}
}

// identity returns the ID of a job's attempt.
func identity(t *testing.T, j *v1alpha1.MPIJob) string {
	t.Helper()
	c := new(corev1.ConfigMap)
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: j.Namespace, Name: jobdoc.DocumentName(j, 0)}, c); err != nil {
		t.Fatal(err)
	}
	d, err := bootstrap.Parse([]byte(c.Data[names.BootstrapFile]))
	if err != nil {
		t.Fatal(err)
	}
	return d.Job.ID
}

// leaf returns a certificate of pod 1 of the job with this ID, as only the operator can make
// it: with the secret in its own namespace.
func leaf(t *testing.T, id string) pki.Pair {
	t.Helper()
	s := new(corev1.Secret)
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: release, Name: "outrigger-issuer"}, s); err != nil {
		t.Fatal(err)
	}
	h := hmac.New(sha256.New, s.Data["seed"])
	h.Write([]byte("authority\x00" + id))
	authority, err := pki.FromSeed(id, [32]byte(h.Sum(nil)), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return leafOf(t, authority)
}

// forged returns a certificate for pod 1 of the job with this ID, signed by another CA.
func forged(t *testing.T, id string) pki.Pair {
	t.Helper()
	authority, err := pki.New(id, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return leafOf(t, authority)
}

func leafOf(t *testing.T, authority *pki.Authority) pki.Pair {
	t.Helper()
	pair, err := authority.Leaf(1)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// intruder starts a pod that tries to connect to a sidecar with these certificates.
func intruder(t *testing.T, ns, address string, pairs map[string]pki.Pair) *corev1.Pod {
	t.Helper()
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stranger"}, Data: map[string][]byte{}}
	for name, p := range pairs {
		keys.Data[name+".crt"], keys.Data[name+".key"] = p.Cert, p.Key
	}
	like := example(ns, "stranger", "probe").Spec.Template.Spec
	like.TopologySpreadConstraints, like.RestartPolicy = nil, corev1.RestartPolicyNever
	like.SecurityContext.FSGroup = new(int64(1000))
	like.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "stranger", DefaultMode: new(int32(0o440))}}}}
	app := &like.Containers[0]
	app.Image, app.Command = lab.Image(harness.Probe), nil
	app.Args = []string{"intrude", address, fmt.Sprint(names.PortPeers), fmt.Sprint(names.PortMetrics), "/keys"}
	app.VolumeMounts = []corev1.VolumeMount{{Name: "keys", MountPath: "/keys", ReadOnly: true}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stranger"}, Spec: like}
	for _, o := range []client.Object{keys, pod} {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return pod
}

// result returns the output of a pod that has succeeded.
func result(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
		}
		return nil
	})
	return kubectl(t, "logs", "-n", p.Namespace, p.Name)
}
