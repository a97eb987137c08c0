package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// beginningJob returns the controller of a job that has just been created, on an API
// server with the given objects.
func beginningJob(t *testing.T, now *time.Time, there ...client.Object) (*Reconciler, client.Client, func() ctrl.Result) {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.New("1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	j := runningJob(*now, 1000)[0].(*v1alpha1.MPIJob)
	j.Status = v1alpha1.MPIJobStatus{}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(there, j)...).WithStatusSubresource(&v1alpha1.MPIJob{}).WithIndex(&corev1.Pod{}, indexJob, labelIndex).Build()
	r := &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(100), Keys: oneKey{authority}, IssuerURL: "https://issuer.test/", Now: func() time.Time { return *now }}
	return r, api, func() ctrl.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

func read[T client.Object](t *testing.T, api client.Client, name string, into T) T {
	t.Helper()
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "hpc", Name: name}, into); err != nil {
		t.Fatal(err)
	}
	return into
}

// serviceNamed returns a Service with that name. It belongs to the job if uid is the
// job's.
func serviceNamed(name, uid string, selector map[string]string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: name, UID: "s"}, Spec: corev1.ServiceSpec{Selector: selector}}
	if uid != "" {
		yes := true
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MPIJob", Name: "cg", UID: "1", Controller: &yes}}
	}
	return s
}

// TestServicesOfTheSameName: a Service of another owner with the job's name stays
// unchanged, and the job starts with another name. The job's own Service, merged with
// another one, selects the job's pods again.
func TestServicesOfTheSameName(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	theirs := map[string]string{"app": "web"}
	_, api, look := beginningJob(t, &now, serviceNamed("cg", "", theirs), serviceNamed("cg-ranks", "1", map[string]string{"app": "web", names.LabelJob: "cg"}))
	look()
	if s := read(t, api, "cg", new(corev1.Service)); cmp.Diff(theirs, s.Spec.Selector) != "" || len(s.OwnerReferences) != 0 {
		t.Errorf("their Service is now %+v", s)
	}
	if s := read(t, api, "cg-ranks", new(corev1.Service)); cmp.Diff(map[string]string{names.LabelJob: "cg"}, s.Spec.Selector) != "" {
		t.Errorf("the job's Service selects %v", s.Spec.Selector)
	}
	if b := read(t, api, "cg-0", new(batchv1.Job)); b.Spec.Template.Spec.Subdomain != "cg-ranks" {
		t.Errorf("the pods' subdomain is %q", b.Spec.Template.Spec.Subdomain)
	}
}

// TestConflictGoes: a conflict names the object's kind, and the job continues soon
// after the object is deleted.
func TestConflictGoes(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	began := now
	_, api, look := beginningJob(t, &now, serviceNamed("cg-ranks", "", nil))
	var result ctrl.Result
	for range 100 { // some minutes
		if result = look(); result.RequeueAfter <= 0 || result.RequeueAfter > 10*time.Second+now.Sub(began)/8 {
			t.Fatalf("after %v the next look is in %v", now.Sub(began), result.RequeueAfter)
		}
		now = now.Add(result.RequeueAfter)
		if now.Sub(began) > 5*time.Minute {
			break
		}
	}
	c := trueCondition(&read(t, api, "cg", new(v1alpha1.MPIJob)).Status)
	if c == nil || c.Reason != v1alpha1.ReasonNameConflict || !strings.HasPrefix(c.Message, "Service cg-ranks exists") {
		t.Errorf("the job's state is %+v", c)
	}
	if err := api.Delete(t.Context(), serviceNamed("cg-ranks", "", nil)); err != nil {
		t.Fatal(err)
	}
	look()
	read(t, api, "cg-0", new(batchv1.Job))
}

// TestAttemptKeepsItsNames: an attempt whose job document was made by an earlier
// release keeps the names in it.
func TestAttemptKeepsItsNames(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r, api, look := beginningJob(t, &now)
	a := &desired.Attempt{Job: read(t, api, "cg", new(v1alpha1.MPIJob)), Peers: "cg"} // as the earlier release did
	id, err := r.identity(a)
	if err != nil {
		t.Fatal(err)
	}
	document, err := a.ConfigMap(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Create(t.Context(), document); err != nil {
		t.Fatal(err)
	}
	look()
	read(t, api, "cg", new(corev1.Service))
	if b := read(t, api, "cg-0", new(batchv1.Job)); b.Spec.Template.Spec.Subdomain != "cg" {
		t.Errorf("the pods' subdomain is %q, the document has cg", b.Spec.Template.Spec.Subdomain)
	}
}

// TestServiceIsPutBack: the job's Service is restored if it is merged with another one
// or deleted while the pods start or run. A Service that no pods need is not made.
func TestServiceIsPutBack(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for what, c := range map[string]struct {
		running bool
		after   time.Duration
	}{"starting": {false, keepStarting}, "running": {true, keepRunning}} {
		_, api, look := beginningJob(t, &now)
		look()
		look()
		name := "cg-ranks"
		if c.running {
			j := read(t, api, "cg", new(v1alpha1.MPIJob))
			j.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRunning, Status: metav1.ConditionTrue, Reason: "RanksStarted", LastTransitionTime: metav1.NewTime(now)}}
			if err := api.Status().Update(t.Context(), j); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			look()
			s := read(t, api, name, new(corev1.Service))
			s.Spec.Selector = map[string]string{"app": "web", names.LabelJob: "cg"}
			if err := api.Update(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			now = now.Add(c.after)
			if left := look().RequeueAfter; left <= 0 || left > c.after {
				t.Errorf("%s: the next look is in %v", what, left)
			}
			if s := read(t, api, name, new(corev1.Service)); cmp.Diff(map[string]string{names.LabelJob: "cg"}, s.Spec.Selector) != "" {
				t.Errorf("%s: the job's Service selects %v", what, s.Spec.Selector)
			}
			if err := api.Delete(t.Context(), serviceNamed(name, "", nil)); err != nil {
				t.Fatal(err)
			}
			now = now.Add(c.after)
			look()
			read(t, api, name, new(corev1.Service))
		}
	}
}

// TestServiceThatIsTaken: if another owner's Service replaces that of a running job, an
// Event reports it, and the job's state stays unchanged.
func TestServiceThatIsTaken(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r, api, look := beginningJob(t, &now)
	look()
	look()
	if err := api.Delete(t.Context(), serviceNamed("cg-ranks", "", nil)); err != nil {
		t.Fatal(err)
	}
	if err := api.Create(t.Context(), serviceNamed("cg-ranks", "", map[string]string{"app": "web"})); err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(100)
	r.Events, now = recorder, now.Add(keepStarting)
	if left := look().RequeueAfter; left <= 0 || left > keepStarting {
		t.Errorf("the next look is in %v", left)
	}
	c := trueCondition(&read(t, api, "cg", new(v1alpha1.MPIJob)).Status)
	if c.Reason == v1alpha1.ReasonNameConflict || c.Reason == v1alpha1.ReasonAPIError || strings.Contains(c.Message, "cg-ranks") {
		t.Errorf("the state is %s: %s", c.Reason, c.Message)
	}
	if e := <-recorder.Events; !strings.Contains(e, "Service cg-ranks exists and does not belong to this MPIJob") {
		t.Errorf("the Event is %s", e)
	}
	if s := read(t, api, "cg-ranks", new(corev1.Service)); s.Spec.Selector["app"] != "web" {
		t.Errorf("their Service is now %+v", s)
	}
}

// TestServiceOfAnEarlierRelease: an attempt that uses a Service with another name keeps
// it, and gets no second one.
func TestServiceOfAnEarlierRelease(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r, api, look := beginningJob(t, &now)
	a := &desired.Attempt{Job: read(t, api, "cg", new(v1alpha1.MPIJob)), Peers: "cg"}
	id, err := r.identity(a)
	if err != nil {
		t.Fatal(err)
	}
	document, err := a.ConfigMap(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Create(t.Context(), document); err != nil {
		t.Fatal(err)
	}
	look()
	look()
	if err := api.Delete(t.Context(), serviceNamed("cg", "", nil)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(keepStarting)
	look()
	read(t, api, "cg", new(corev1.Service))
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "hpc", Name: "cg-ranks"}, new(corev1.Service)); !apierrors.IsNotFound(err) {
		t.Errorf("a second Service: %v", err)
	}
}

// TestQueueWithoutKueue: a job that names a queue in a cluster without Kueue reports
// this once by an Event, and by its condition while it waits or runs.
func TestQueueWithoutKueue(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, queue := range []string{"", "hpc"} {
		r, api, look := beginningJob(t, &now)
		recorder := events.NewFakeRecorder(100)
		r.Events = recorder
		if queue != "" {
			j := read(t, api, "cg", new(v1alpha1.MPIJob))
			j.Labels = map[string]string{desired.LabelQueue: queue}
			if err := api.Update(t.Context(), j); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			look()
			b := read(t, api, "cg-0", new(batchv1.Job))
			b.Status.StartTime = &metav1.Time{Time: now}
			if err := api.Status().Update(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			now = now.Add(2 * time.Second)
		}
		told := 0
		for len(recorder.Events) > 0 {
			if e := <-recorder.Events; strings.HasPrefix(e, "Warning QueueMissing ") {
				told++
			}
		}
		c := trueCondition(&read(t, api, "cg", new(v1alpha1.MPIJob)).Status)
		if warns := strings.Contains(c.Message, "this cluster has no Kueue"); warns != (queue != "") || (told == 1) != (queue != "") {
			t.Errorf("queue %q: %d Events, condition %s: %s", queue, told, c.Reason, c.Message)
		}
	}
}
