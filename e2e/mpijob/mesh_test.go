//go:build cluster

package mpijob

import (
	"context"
	"errors"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// A policy adds a container that does not end by itself to every pod of a namespace, as a
// service mesh does: jobs of each launch mode are Complete when their ranks have ended.
func TestMesh(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	meshed(t, ns)
	launched := submit(t, example(ns, "launched", "ring", "-rounds", "20"))
	contained := example(ns, "contained", "ring", "-rounds", "20")
	contained.Spec.Ranks, contained.Spec.RanksPerPod, contained.Spec.LaunchMode = 2, 1, v1alpha1.LaunchContainer
	submit(t, contained)
	for _, j := range []*v1alpha1.MPIJob{launched, contained} {
		s := becomes(t, j, v1alpha1.ConditionComplete).Status
		if *s.Ranks.Succeeded != j.Spec.Ranks || s.FirstFailure != nil {
			t.Errorf("%s: %+v", j.Name, s)
		}
		eventually(t, func() error { // the pods are ended
			b := new(batchv1.Job)
			if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: s.JobName}, b); err != nil {
				return err
			}
			if b.Status.Active > 0 || len(b.Status.Conditions) == 0 {
				return fmt.Errorf("Job %s has %d active pods", b.Name, b.Status.Active)
			}
			return nil
		})
	}
}

// meshed makes a policy that adds a container to every new pod of a namespace.
func meshed(t *testing.T, ns string) {
	t.Helper()
	const proxy = `[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "mesh-proxy", image: %q, imagePullPolicy: "Never", ` +
		`securityContext: Object.spec.containers.securityContext{allowPrivilegeEscalation: false, capabilities: Object.spec.containers.securityContext.capabilities{drop: ["ALL"]}}}}]`
	fail := admissionv1.Fail
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mesh-" + ns}, Spec: admissionv1.MutatingAdmissionPolicySpec{
		FailurePolicy: &fail, ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: fmt.Sprintf(proxy, lab.Image(harness.Probe))}}},
	}}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name}}
	for _, o := range []client.Object{policy, binding} {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := api.Delete(context.Background(), o); err != nil { // the test's own context has ended
				t.Error(err)
			}
		})
	}
	eventually(t, func() error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "try"}, Spec: example(ns, "try", "ring").Spec.Template.Spec}
		switch err := api.Create(t.Context(), p, client.DryRunAll); {
		case err != nil:
			return err
		case len(p.Spec.Containers) < 2:
			return errors.New("the policy adds nothing yet")
		}
		return nil
	})
}
