package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestGoesOnWithoutRights: an operator that may not read events, LimitRanges,
// namespaces or nodes, one of them or all, makes a job's pods, waits for them, and
// reports how the job failed. The missing right is logged once.
func TestGoesOnWithoutRights(t *testing.T) {
	all := []string{"events", "limitranges", "namespaces", "nodes"}
	for _, kinds := range [][]string{all[:1], all[1:2], all[2:3], all[3:], all} {
		t.Run(strings.Join(kinds, " "), func(t *testing.T) {
			withheld.Clear()
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			j := runningJob(now, 1000)[0].(*v1alpha1.MPIJob)
			j.Status = v1alpha1.MPIJobStatus{}
			j.Spec.RunPolicy.RestartLimit = new(int32(0))
			profile := &v1alpha1.FabricProfile{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "hpc"}}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
			scheme, err := Scheme()
			if err != nil {
				t.Fatal(err)
			}
			authority, err := pki.New("1", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			asked := map[string]int{}
			refuse := func(kind, name string) error {
				for _, k := range kinds {
					if k == kind {
						asked[kind]++
						return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, name, errors.New("no right"))
					}
				}
				return nil
			}
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(j, profile, node).WithStatusSubresource(&v1alpha1.MPIJob{}, &batchv1.Job{}).
				WithIndex(&corev1.Pod{}, indexJob, labelIndex).
				WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, how ...client.CreateOption) error {
					if o.GetUID() == "" {
						o.SetUID("2") // as the API server does
					}
					return c.Create(ctx, o, how...)
				}}).
				WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
				WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).Build()
			live := interceptor.NewClient(api, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, how ...client.GetOption) error {
					kind := ""
					switch o.(type) {
					case *corev1.Node:
						kind = "nodes"
					case *corev1.Namespace:
						kind = "namespaces"
					}
					if err := refuse(kind, key.Name); err != nil {
						return err
					}
					return c.Get(ctx, key, o, how...)
				},
				List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, how ...client.ListOption) error {
					kind := ""
					switch o.(type) {
					case *corev1.EventList:
						kind = "events"
					case *corev1.LimitRangeList:
						kind = "limitranges"
					}
					if err := refuse(kind, ""); err != nil {
						return err
					}
					return c.List(ctx, o, how...)
				},
			})
			said := map[string]int{}
			ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) {
				for _, k := range all {
					if strings.Contains(line, "may not read "+k) {
						said[k]++
					}
				}
			}, funcr.Options{}))
			r := &Reconciler{Client: api, Live: live, Events: events.NewFakeRecorder(1000), Keys: oneKey{authority}, IssuerURL: "https://issuer.test/", Now: func() time.Time { return now }}
			look := func(times int) {
				t.Helper()
				for range times {
					if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)}); err != nil {
						t.Fatal(err)
					}
					now = now.Add(5 * time.Second)
				}
			}
			look(10) // no pod is made: the reason is searched in the events
			batches := new(batchv1.JobList)
			if err := api.List(ctx, batches); err != nil || len(batches.Items) != 1 {
				t.Fatalf("%d Jobs are made, %v: %v", len(batches.Items), err, read(t, api, "cg", new(v1alpha1.MPIJob)).Status.Conditions)
			}
			p := runningJob(now, 1000)[2].(*corev1.Pod)
			b := &batches.Items[0]
			b.Status.StartTime = &metav1.Time{Time: now.Add(-time.Second)}
			if err := api.Status().Update(ctx, b); err != nil {
				t.Fatal(err)
			}
			p.Labels, p.Spec.NodeName = map[string]string{names.LabelJob: "cg", names.LabelAttempt: "0", batchv1.JobCompletionIndexAnnotation: "0"}, "node1"
			p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = b.Name, b.UID
			p.Status = corev1.PodStatus{Phase: corev1.PodPending}
			if err := api.Create(ctx, p); err != nil {
				t.Fatal(err)
			}
			look(10) // the kubelet of the pod has reported nothing
			p.Status.Phase, p.Status.StartTime = corev1.PodFailed, &metav1.Time{Time: now}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, FinishedAt: metav1.NewTime(now)}}}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: names.ContainerSidecar, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			if err := api.Status().Update(ctx, p); err != nil {
				t.Fatal(err)
			}
			look(40)
			if c := trueCondition(&read(t, api, "cg", new(v1alpha1.MPIJob)).Status); c == nil || c.Type != v1alpha1.ConditionFailed || !strings.Contains(c.Message, "code 3") {
				t.Errorf("%+v, want that the application ended with 3", c)
			}
			for _, k := range kinds {
				if asked[k] == 0 || said[k] != 1 {
					t.Errorf("%s: asked for %d times, said %d times", k, asked[k], said[k])
				}
			}
		})
	}
}
