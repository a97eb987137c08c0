//go:build cluster

package apitest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestObjects: a job has the expected objects, all of them are deleted with the job, and none
// of them contains a key.
func TestObjects(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) {
		j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "hpc"}
		j.Spec.RunPolicy.Disruption = v1alpha1.DisruptionPrevented
		j.Spec.Devices = []v1alpha1.DeviceRequest{{Resource: names.ResourceHCA, Count: 2}}
	})
	b := get(t, ns, "cg-0", &batchv1.Job{})
	document := get(t, ns, jobdoc.DocumentName(j, 0), &corev1.ConfigMap{})
	for _, o := range []client.Object{b, document, get(t, ns, "cg-ranks", &corev1.Service{}), get(t, ns, "cg", &policyv1.PodDisruptionBudget{})} {
		if refs := o.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != j.UID {
			t.Errorf("%T %s is owned by %v", o, o.GetName(), refs)
		}
	}
	d, err := bootstrap.Parse([]byte(document.Data[names.BootstrapFile]))
	if err != nil {
		t.Fatal(err)
	}
	if d.Ranks != 4 || len(d.Pods) != 2 || d.Pods[1].Address != fmt.Sprintf("cg-0-1.cg-ranks.%s.svc:%d", ns, names.PortPeers) {
		t.Errorf("document %+v", d)
	}
	if text := document.Data[names.BootstrapFile]; d.TLS.Issuer == nil || !strings.Contains(d.TLS.CA, "CERTIFICATE") || strings.Contains(text, "PRIVATE") {
		t.Errorf("the document has the credentials %+v", d.TLS)
	}
	secrets := new(corev1.SecretList)
	if err := api.List(t.Context(), secrets, client.InNamespace(ns)); err != nil || len(secrets.Items) != 0 {
		t.Errorf("the job has %d Secrets, %v", len(secrets.Items), err)
	}
	if b.Labels["kueue.x-k8s.io/queue-name"] != "hpc" || *b.Spec.Completions != 2 || *b.Spec.CompletionMode != batchv1.IndexedCompletion {
		t.Errorf("Job %+v", b.Spec)
	}
	pod := &b.Spec.Template.Spec
	sidecar, app := pod.InitContainers[1], pod.Containers[0]
	if q := sidecar.Resources.Limits[names.ResourceHCA]; q.Value() != 2 || len(app.Resources.Limits) != 0 {
		t.Errorf("devices: the sidecar has %v, the application %v", sidecar.Resources.Limits, app.Resources.Limits)
	}
	if len(app.VolumeMounts) != 1 || app.VolumeMounts[0].Name != names.VolumeShared {
		t.Errorf("the application mounts %v", app.VolumeMounts)
	}
}

// TestJobSucceeds checks the conditions and counts of a job that succeeds. At the end no
// certificates remain, and the operator has no work left.
func TestJobSucceeds(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, nil)
	b := get(t, ns, "cg-0", &batchv1.Job{})
	pods := standInPods(t, b)
	if s := becomes(t, j, v1alpha1.ConditionRunning).Status; *s.Ranks.Running != 4 || s.StartTime == nil || s.JobName != "cg-0" {
		t.Fatalf("status %+v", s)
	}
	for _, p := range pods {
		text := (&podlife.Message{Kind: podlife.KindSidecar, Traffic: []podlife.Traffic{{Transport: "tcp", Peers: 1}}}).Encode()
		exits(t, p, 0, "")
		p.Status.InitContainerStatuses[0].State.Terminated.Message = string(text)
		if err := api.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	ends(t, b, batchv1.JobComplete)
	s := becomes(t, j, v1alpha1.ConditionComplete).Status
	if *s.Ranks.Succeeded != 4 || s.CompletionTime == nil || s.FirstFailure != nil || strings.Join(s.Transports, "") != "tcp" {
		t.Fatalf("status %+v", s)
	}
	quiet(t, ns)
	if n, err := testutil.GatherAndCount(registry, "outrigger_mpijobs", "outrigger_mpijob_changes_total", "outrigger_mpijob_start_seconds"); err != nil || n < 4 {
		t.Errorf("%d series of the operator's metrics, %v", n, err)
	}
}

// quiet checks that the operator makes no calls for ns while no object changes there. Jobs of
// other tests, which run before this one, may have deadlines that end now.
func quiet(t *testing.T, ns string) {
	t.Helper()
	var before int
	// Work in progress ends. The operator delays changes of a status's counts and texts for up
	// to a second after the last write.
	const settled = 3 * time.Second
	eventually(t, func() error {
		before = counted.count()
		time.Sleep(settled)
		if made := counted.since(before, ns); len(made) != 0 {
			return fmt.Errorf("calls within %v in which nothing happened: %q", settled, made)
		}
		return nil
	})
	time.Sleep(3 * time.Second)
	if made := counted.since(before, ns); len(made) != 0 {
		t.Errorf("calls while nothing happened: %q", made)
	}
}

// TestFailureAndRestart: the first failure is reported, and all ranks start again under a new
// identity. At the restart limit the job fails and keeps the objects that a user can read.
func TestFailureAndRestart(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.RunPolicy.RestartLimit = ptr(int32(1)) })
	first := get(t, ns, "cg-0", &batchv1.Job{})
	identity := func(attempt int32) string {
		d, err := bootstrap.Parse([]byte(get(t, ns, jobdoc.DocumentName(j, attempt), &corev1.ConfigMap{}).Data[names.BootstrapFile]))
		if err != nil {
			t.Fatal(err)
		}
		return d.Job.ID
	}
	id := identity(0)
	pods := standInPods(t, first)
	message := func(rank int) string {
		return string((&podlife.Message{Kind: podlife.KindRanks, Pod: 1, Failures: []podlife.Failure{
			{Rank: rank, Code: 3, Reason: podlife.RankExited, Text: "exited with code 3", Time: time.Now()},
		}}).Encode())
	}
	exits(t, pods[1], 3, message(2))
	s := becomes(t, j, v1alpha1.ConditionRestarting).Status
	if f := s.FirstFailure; f == nil || *f.Rank != 2 || *f.ExitCode != 3 || f.Node != "node2" || f.Pod != pods[1].Name || *f.Attempt != 0 {
		t.Fatalf("first failure %+v", f)
	}
	eventually(t, func() error { // as the Job's controller would do: remove its finalizer and its pods
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(first), new(batchv1.Job)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the failed attempt's Job: %w", err)
		}
		return nil
	})
	for _, p := range pods {
		if err := api.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	second := get(t, ns, "cg-1", &batchv1.Job{})
	if again := identity(1); again == id {
		t.Error("two attempts have one identity")
	}
	pods = standInPods(t, second)
	becomes(t, j, v1alpha1.ConditionRunning)
	exits(t, pods[1], 3, message(3))
	s = becomes(t, j, v1alpha1.ConditionFailed).Status
	if *s.Restarts != 1 || *s.FirstFailure.Rank != 3 || *s.FirstFailure.Attempt != 1 {
		t.Fatalf("status %+v, first failure %+v", s, s.FirstFailure)
	}
	eventually(t, func() error { // the Job's controller ends the other pod
		b := new(batchv1.Job)
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(second), b); err != nil {
			return err
		}
		if d := b.Spec.ActiveDeadlineSeconds; d == nil || *d != 1 {
			return fmt.Errorf("the Job of a failed MPIJob goes on: deadline %v", d)
		}
		return nil
	})
	list := new(eventsv1.EventList)
	eventually(t, func() error {
		if err := api.List(t.Context(), list, client.InNamespace(ns)); err != nil {
			return err
		}
		text, err := json.Marshal(list)
		for _, word := range []string{"JobCreated", "Restarting", "Failed", "rank 3"} {
			if !strings.Contains(string(text), word) {
				return fmt.Errorf("no event says %s (%w): %s", word, err, text)
			}
		}
		return nil
	})
}

// TestSuspend: suspending and resuming an MPIJob suspends and resumes its Job.
func TestSuspend(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.RunPolicy.Suspend = ptr(true) })
	becomes(t, j, v1alpha1.ConditionSuspended)
	b := get(t, ns, "cg-0", &batchv1.Job{})
	if !*b.Spec.Suspend {
		t.Fatal("the Job of a suspended MPIJob is not suspended")
	}
	if err := api.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":{"suspend":false}}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if *b.Spec.Suspend {
			return fmt.Errorf("the Job is still suspended")
		}
		return nil
	})
	standInPods(t, b)
	becomes(t, j, v1alpha1.ConditionRunning)
}

// TestNotOurs: the operator neither adopts nor deletes an object of another owner.
func TestNotOurs(t *testing.T) {
	ns := namespace(t)
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cg-ranks"}, Spec: corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"a": "b"}}}
	if err := api.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	j := submit(t, ns, nil)
	eventually(t, func() error {
		now := new(v1alpha1.MPIJob)
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), now); err != nil {
			return err
		}
		for _, c := range now.Status.Conditions {
			if c.Type == v1alpha1.ConditionPending && c.Reason == v1alpha1.ReasonNameConflict && strings.Contains(c.Message, "rename") {
				return nil
			}
		}
		return fmt.Errorf("no conflict is told: %+v", now.Status)
	})
	if s := get(t, ns, "cg-ranks", &corev1.Service{}); s.Spec.Selector["a"] != "b" || len(s.OwnerReferences) != 0 {
		t.Errorf("their Service is now %+v", s)
	}
	if err := api.Delete(t.Context(), j); err != nil { // otherwise the operator checks again whether the conflict is over
		t.Fatal(err)
	}
	other := submit(t, namespace(t), func(j *v1alpha1.MPIJob) { j.Spec.ManagedBy = "example.com/other" })
	quiet(t, ns)
	if now := get(t, other.Namespace, "cg", &v1alpha1.MPIJob{}); len(now.Status.Conditions) != 0 {
		t.Errorf("a job of another controller has the status %+v", now.Status)
	}
}

// TestProfile: a job waits until its profile exists, and runs with it.
func TestProfile(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.ProfileName = "careful" })
	becomes(t, j, v1alpha1.ConditionPending)
	p := &v1alpha1.FabricProfile{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "careful"}}
	p.Spec.Encryption, p.Spec.WaitPolicy, p.Spec.Rendezvous, p.Spec.HeartbeatMilliseconds = v1alpha1.EncryptionTLS, "Block", "Stream", ptr(int32(250))
	if err := api.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	d, err := bootstrap.Parse([]byte(get(t, ns, jobdoc.DocumentName(j, 0), &corev1.ConfigMap{}).Data[names.BootstrapFile]))
	if err != nil {
		t.Fatal(err)
	}
	if d.Tuning.Encrypt != "tls" || d.Tuning.Wait != "block" || d.Tuning.Rendezvous != "stream" || time.Duration(d.Tuning.Heartbeat) != 250*time.Millisecond {
		t.Errorf("tuning %+v", d.Tuning)
	}
}

// TestTimeToLive: a job that has ended is deleted when its time to live is over.
func TestTimeToLive(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) {
		j.Spec.RunPolicy.TTLSecondsAfterFinished, j.Spec.RunPolicy.ActiveDeadlineSeconds = ptr(int32(1)), ptr(int64(1))
	})
	standInPods(t, get(t, ns, "cg-0", &batchv1.Job{}))
	if s := becomes(t, j, v1alpha1.ConditionFailed).Status; s.FirstFailure.Reason != v1alpha1.ReasonDeadlineExceeded {
		t.Fatalf("first failure %+v", s.FirstFailure)
	}
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), new(v1alpha1.MPIJob)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the job is still there: %w", err)
		}
		return nil
	})
}

// TestNoCPUIsTold: the reduced pods in the operator's cache suffice for the warning about an
// application that requests no CPU.
func TestNoCPUIsTold(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, nil)
	standInPods(t, get(t, ns, "cg-0", &batchv1.Job{}))
	now := becomes(t, j, v1alpha1.ConditionRunning)
	for _, c := range now.Status.Conditions {
		if c.Type == v1alpha1.ConditionRunning && !strings.Contains(c.Message, "container solver requests no CPU") {
			t.Errorf("Running says %q", c.Message)
		}
	}
}
