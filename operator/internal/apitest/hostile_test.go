//go:build cluster

package apitest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestProfileChangesWhileTheJobRuns: a job reads its profile when it is started. A later
// change or deletion of the profile does not affect it.
func TestProfileChangesWhileTheJobRuns(t *testing.T) {
	ns := namespace(t)
	p := &v1alpha1.FabricProfile{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fast"}, Spec: v1alpha1.FabricProfileSpec{WaitPolicy: "Block"}}
	if err := api.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.ProfileName = "fast" })
	b := get(t, ns, "cg-0", &batchv1.Job{})
	standInPods(t, b)
	before := becomes(t, j, v1alpha1.ConditionRunning)
	credit := resource.MustParse("8Mi")
	p.Spec.Credit = &credit // changes the sidecar's memory
	if err := api.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	quiet(t, ns)
	if err := api.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	quiet(t, ns)
	if diff := cmp.Diff(before.Status.Conditions, get(t, ns, "cg", &v1alpha1.MPIJob{}).Status.Conditions); diff != "" {
		t.Errorf("conditions of a job that runs (-before +after):\n%s", diff)
	}
}

// TestForeignPod: a pod that has a job's labels but another creator is ignored.
func TestForeignPod(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, nil)
	b := get(t, ns, "cg-0", &batchv1.Job{})
	pods := standInPods(t, b)
	becomes(t, j, v1alpha1.ConditionRunning)
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "foreign", Labels: pods[0].Labels}, Spec: pods[0].Spec}
	if err := api.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	foreign.Status = *pods[0].Status.DeepCopy()
	exits(t, foreign, 3, "")
	quiet(t, ns)
	if s := get(t, ns, "cg", &v1alpha1.MPIJob{}).Status; s.FirstFailure != nil || *s.Ranks.Running != 4 {
		t.Errorf("a foreign pod was heard: %+v", s)
	}
}

// TestForgedMessage: an application that writes its launcher's termination message itself does
// not prevent the end of the job, and is still the one that failed.
func TestForgedMessage(t *testing.T) {
	for what, message := range map[string]string{
		"out of every bound": `{"kind":"ranks","pod":1,"failures":[{"rank":2,"exitCode":3,"reason":"9lives","message":"` + strings.Repeat("ü", 512) + `","time":"9999-12-31T23:59:59-23:00"}]}`,
		"another's rank":     `{"kind":"ranks","pod":0,"failures":[{"rank":0,"exitCode":3,"reason":"Exited","message":"not me","time":"1970-01-01T00:00:00Z"}]}`,
		"no message":         "no message\x00at all",
	} {
		t.Run(what, func(t *testing.T) {
			ns := namespace(t)
			j := submit(t, ns, nil)
			pods := standInPods(t, get(t, ns, "cg-0", &batchv1.Job{}))
			becomes(t, j, v1alpha1.ConditionRunning)
			exits(t, pods[1], 3, message)
			if f := becomes(t, j, v1alpha1.ConditionFailed).Status.FirstFailure; f.Pod != pods[1].Name || f.Rank != nil && *f.Rank != 2 {
				t.Errorf("first failure %+v", f)
			}
		})
	}
}

// TestMadeAgain: an MPIJob that is deleted and created again under its name waits for the
// remaining objects of the earlier one, and its status says so.
func TestMadeAgain(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, nil)
	standInPods(t, get(t, ns, "cg-0", &batchv1.Job{}))
	becomes(t, j, v1alpha1.ConditionRunning)
	if err := api.Delete(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	again := submit(t, ns, nil)
	s := becomes(t, again, v1alpha1.ConditionPending).Status
	if c := s.Conditions[0]; c.Reason != v1alpha1.ReasonNameConflict || !strings.Contains(c.Message, "earlier MPIJob") || s.Ranks != nil && *s.Ranks.Running != 0 {
		t.Errorf("%s: %s; ranks %+v", c.Reason, c.Message, s.Ranks)
	}
	// The test deletes the objects as the garbage collector would.
	for _, o := range []client.Object{&corev1.Service{}, &corev1.ConfigMap{}, &batchv1.Job{}, &corev1.Pod{}} {
		if o, ok := o.(*corev1.Service); ok {
			o.Namespace, o.Name = ns, "cg-ranks"
			if err := api.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := api.DeleteAllOf(t.Context(), o, client.InNamespace(ns), client.PropagationPolicy("Background"), client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		b := new(batchv1.Job)
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "cg-0"}, b); err != nil {
			return err
		}
		if b.OwnerReferences[0].UID != again.UID {
			return errors.New("the Job is still the earlier one's")
		}
		return nil
	})
}

// TestMadeAgainAfterAFailure: an MPIJob that is deleted because it has failed, and is created
// again at once, begins when the terminating pods of the earlier one have ended, because its
// host names resolve to them until then. A pod that has failed is not waited for, and counts
// as a pod of the earlier MPIJob.
func TestMadeAgainAfterAFailure(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, nil)
	old := get(t, ns, "cg-0", &batchv1.Job{})
	pods := standInPods(t, old)
	becomes(t, j, v1alpha1.ConditionRunning)
	exits(t, pods[1], 3, "")
	time.Sleep(2 * time.Second)                              // times in Kubernetes are whole seconds: the exit must be earlier than the deletion
	if err := api.Delete(t.Context(), pods[0]); err != nil { // the pod has its grace period
		t.Fatal(err)
	}
	becomes(t, j, v1alpha1.ConditionFailed)
	if err := api.Delete(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	again := submit(t, ns, nil)
	becomes(t, again, v1alpha1.ConditionPending)
	// The test deletes the objects as the garbage collector would, which deletes the pods
	// last.
	for _, o := range []client.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cg-ranks"}}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: jobdoc.DocumentName(j, 0)}}, old,
	} {
		if err := api.Delete(t.Context(), o, client.PropagationPolicy("Background")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if c := get(t, ns, "cg", &v1alpha1.MPIJob{}).Status.Conditions[0]; c.Reason != v1alpha1.ReasonNameConflict || !strings.Contains(c.Message, pods[0].Name) || strings.Contains(c.Message, pods[1].Name) {
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
		return nil
	})
	if err := api.Delete(t.Context(), pods[0], client.GracePeriodSeconds(0)); err != nil { // as its kubelet would
		t.Fatal(err)
	}
	eventually(t, func() error {
		b := new(batchv1.Job)
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "cg-0"}, b); err != nil {
			return err
		}
		if b.OwnerReferences[0].UID != again.UID {
			return errors.New("the Job is still the earlier one's")
		}
		return nil
	})
	quiet(t, ns)
	if s := becomes(t, again, v1alpha1.ConditionPending).Status; s.FirstFailure != nil || *s.Ranks.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

// TestOldJobStays: if a finalizer delays the deletion of a Job, a restart waits for it and
// does not repeat the deletion.
func TestOldJobStays(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, restarting)
	b := get(t, ns, "cg-0", &batchv1.Job{})
	pods := standInPods(t, b)
	becomes(t, j, v1alpha1.ConditionRunning)
	if err := api.Patch(t.Context(), b, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["example.com/held"]}}`))); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		exits(t, p, 3, "")
	}
	becomes(t, j, v1alpha1.ConditionRestarting)
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if b.DeletionTimestamp == nil {
			return errors.New("the failed attempt's Job is not deleted")
		}
		return nil
	})
	quiet(t, ns)
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "cg-1"}, new(batchv1.Job)); !apierrors.IsNotFound(err) {
		t.Errorf("the next attempt has begun before the end of the old Job: %v", err)
	}
	for _, p := range pods {
		if err := api.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Patch(t.Context(), b, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	get(t, ns, "cg-1", &batchv1.Job{})
}

// TestExternalPodsAndTheirProfile: the objects that another controller's pods need are created
// when the obstacle is gone, and not only when the job is first reconciled.
func TestExternalPodsAndTheirProfile(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.PodManagement, j.Spec.ProfileName = v1alpha1.PodsExternal, "later" })
	becomes(t, j, v1alpha1.ConditionPending)
	if err := api.Create(t.Context(), &v1alpha1.FabricProfile{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "later"}, Spec: v1alpha1.FabricProfileSpec{WaitPolicy: "Block"}}); err != nil {
		t.Fatal(err)
	}
	get(t, ns, jobdoc.DocumentName(j, 0), &corev1.ConfigMap{})
	quiet(t, ns)
}

// TestLargestJob: a real API server accepts the objects of a job with 4,096 pods and the
// longest name.
func TestLargestJob(t *testing.T) {
	ns := namespace(t)
	name := strings.Repeat("j", 40)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Name, j.Spec.Ranks, j.Spec.RanksPerPod = name, 524288, 128 })
	if b := get(t, ns, name+"-0", &batchv1.Job{}); *b.Spec.Completions != 4096 {
		t.Errorf("%d pods", *b.Spec.Completions)
	}
	d, err := bootstrap.Parse([]byte(get(t, ns, jobdoc.DocumentName(j, 0), &corev1.ConfigMap{}).Data[names.BootstrapFile]))
	if err != nil || len(d.Pods) != 4096 {
		t.Errorf("%d pods in the document, %v", len(d.Pods), err)
	}
}

// TestAnyName: a job with any name that the schema accepts is started, or its status says why
// it is not.
func TestAnyName(t *testing.T) {
	ns := namespace(t)
	for _, name := range []string{"a", "a-1", "a-1-1", "z0"} {
		j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Name = name })
		eventually(t, func() error {
			now := new(v1alpha1.MPIJob)
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), now); err != nil {
				return err
			}
			c := now.Status.Conditions
			if len(c) == 1 && (c[0].Reason == v1alpha1.ReasonInvalid || now.Status.JobName == name+"-0") {
				return nil
			}
			return fmt.Errorf("job %s: %+v", name, now.Status)
		})
	}
}

// TestPodsReplacedAsTheyEnd: if the pods of another controller are removed as soon as they
// have ended, so that two ended pods never exist at the same time, the job still counts all of
// them as ended.
func TestPodsReplacedAsTheyEnd(t *testing.T) {
	for _, code := range []int32{0, 3} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			ns := namespace(t)
			submit(t, ns, func(j *v1alpha1.MPIJob) { j.Name = "like" })
			pods := standInPods(t, get(t, ns, "like-0", &batchv1.Job{}))
			j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.PodManagement = v1alpha1.PodsExternal })
			theirs := adopted(t, j, pods)
			becomes(t, j, v1alpha1.ConditionRunning)
			want := v1alpha1.ConditionComplete
			if code != 0 {
				want = v1alpha1.ConditionFailed
			}
			for _, p := range theirs {
				exits(t, p, code, "")
				if err := api.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
					t.Fatal(err)
				}
			}
			s := becomes(t, j, want).Status
			if code == 0 && *s.Ranks.Succeeded != 4 || code != 0 && (s.FirstFailure.ExitCode == nil || *s.FirstFailure.ExitCode != 3) {
				t.Errorf("%+v, %+v", s.Ranks, s.FirstFailure)
			}
		})
	}
}

// TestOperatorIsReplacedBetweenEnds: a pod of another controller has ended and is gone, and
// then the operator that saw its end stops. The next operator knows that the pod has ended.
func TestOperatorIsReplacedBetweenEnds(t *testing.T) {
	alone(t)
	operator := func() (end func()) {
		ctx, stop := context.WithCancel(t.Context())
		done, err := operateBy(ctx, func(next http.RoundTripper) http.RoundTripper { return next })
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	end := operator()
	ns := namespace(t)
	submit(t, ns, func(j *v1alpha1.MPIJob) { j.Name = "like" })
	like := standInPods(t, get(t, ns, "like-0", &batchv1.Job{}))
	j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.PodManagement = v1alpha1.PodsExternal })
	theirs := adopted(t, j, like)
	becomes(t, j, v1alpha1.ConditionRunning)
	exits(t, theirs[0], 0, "")
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), j); err != nil {
			return err
		}
		if e := j.Status.EndedPods; e == nil || e.Succeeded != "0" {
			return fmt.Errorf("the status keeps %+v", e)
		}
		return nil
	})
	if err := api.Delete(t.Context(), theirs[0], client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	end()
	end = operator()
	defer func() { end() }()
	exits(t, theirs[1], 0, "")
	if s := becomes(t, j, v1alpha1.ConditionComplete).Status; *s.Ranks.Succeeded != 4 || s.EndedPods != nil {
		t.Errorf("status %+v", s)
	}
}

// adopted creates copies of running pods, as another controller could have created them for a
// job.
func adopted(t *testing.T, j *v1alpha1.MPIJob, like []*corev1.Pod) (theirs []*corev1.Pod) {
	t.Helper()
	for i, p := range like {
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: fmt.Sprint("set-", i), Labels: map[string]string{
			names.LabelInject: "true", names.LabelJob: j.Name, names.LabelAttempt: "0", batchv1.JobCompletionIndexAnnotation: fmt.Sprint(i),
		}}, Spec: *p.Spec.DeepCopy()}
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		o.Status = *p.Status.DeepCopy()
		if err := api.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		theirs = append(theirs, o)
	}
	return theirs
}
