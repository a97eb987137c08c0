//go:build cluster

package apitest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// podGroups are the definitions of PodGroup that schedulers install, reduced to the fields
// that the operator uses.
const podGroups = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podgroups.%[1]s, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: PodGroup, plural: podgroups, singular: podgroup}
  versions:
  - name: %[2]s
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {minMember: {type: integer, minimum: 1}, priorityClassName: {type: string}}
`

// TestGang: all pods of an attempt are in one PodGroup, and each attempt has its own group. If
// the cluster has no PodGroup kind, the job reports this and waits.
func TestGang(t *testing.T) {
	alone(t) // definitions apply to a whole API server
	ctx, stop := context.WithCancel(t.Context())
	done, err := operateBy(ctx, func(next http.RoundTripper) http.RoundTripper { return next })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for gang, c := range map[v1alpha1.Gang]struct {
		kind schema.GroupVersionKind
		mark func(*batchv1.Job) string
	}{
		v1alpha1.GangSchedulerPlugins: {
			schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"},
			func(b *batchv1.Job) string { return b.Spec.Template.Labels["scheduling.x-k8s.io/pod-group"] },
		},
		v1alpha1.GangVolcano: {
			schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"},
			func(b *batchv1.Job) string { return b.Spec.Template.Annotations["scheduling.k8s.io/group-name"] },
		},
	} {
		t.Run(string(gang), func(t *testing.T) {
			ns := namespace(t)
			limit := int32(1)
			j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.RunPolicy.Gang, j.Spec.RunPolicy.RestartLimit = gang, &limit })
			eventually(t, func() error {
				if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), j); err != nil {
					return err
				}
				p := meta.FindStatusCondition(j.Status.Conditions, v1alpha1.ConditionPending)
				if p == nil || p.Reason != v1alpha1.ReasonInvalid || !strings.Contains(p.Message, "the cluster has no "+c.kind.String()) {
					return fmt.Errorf("without the kind: %+v", p)
				}
				return nil
			})
			definition := object(t, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, fmt.Sprintf(podGroups, c.kind.Group, c.kind.Version))
			if err := api.Create(t.Context(), definition); err != nil {
				t.Fatal(err)
			}
			// A user resolves the problem and then changes the job, so that it is reconciled.
			eventually(t, func() error {
				if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), j); err != nil {
					return err
				}
				j.Annotations = map[string]string{"touched": fmt.Sprint(len(j.ResourceVersion), j.ResourceVersion)}
				return errors.Join(api.Update(t.Context(), j), api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "cg-0"}, new(batchv1.Job)))
			})
			group := func(attempt int) *unstructured.Unstructured {
				u := new(unstructured.Unstructured)
				u.SetGroupVersionKind(c.kind)
				get(t, ns, fmt.Sprint("cg-", attempt), u)
				members, _, _ := unstructured.NestedInt64(u.Object, "spec", "minMember")
				if members != 2 || !metav1.IsControlledBy(u, j) {
					t.Errorf("%+v", u)
				}
				return u
			}
			first := group(0)
			batch := get(t, ns, "cg-0", &batchv1.Job{})
			if c.mark(batch) != "cg-0" {
				t.Errorf("pods name the group %q", c.mark(batch))
			}
			for _, p := range standInPods(t, batch) {
				exits(t, p, 3, "")
			}
			becomes(t, j, v1alpha1.ConditionRestarting) // otherwise the ends of the pods are not known
			eventually(t, func() error {                // no other client deletes pods here
				return api.DeleteAllOf(t.Context(), new(corev1.Pod), client.InNamespace(ns), client.GracePeriodSeconds(0))
			})
			group(1)
			eventually(t, func() error {
				if err := api.Get(t.Context(), client.ObjectKeyFromObject(first), first); !apierrors.IsNotFound(err) {
					return errors.Join(errors.New("the first attempt's group is there"), err)
				}
				return nil
			})
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), j); err != nil {
				t.Fatal(err)
			}
			j.Spec.RunPolicy.Gang = v1alpha1.GangNone
			if err := api.Update(t.Context(), j); err == nil || !strings.Contains(err.Error(), "runPolicy.gang cannot be changed") && !apierrors.IsConflict(err) {
				t.Errorf("changing gang: %v", err)
			}
		})
	}
}
