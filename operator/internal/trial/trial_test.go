package trial

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// cluster returns a fake cluster in which the test acts as the operator.
func cluster(t *testing.T) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.MPIJob{}).Build()
}

// play sets the status of the trial's job to one state after the other.
func play(t *testing.T, c client.Client, states ...v1alpha1.MPIJobStatus) {
	t.Helper()
	for _, s := range states {
		var jobs v1alpha1.MPIJobList
		for len(jobs.Items) == 0 {
			if err := c.List(t.Context(), &jobs); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
		jobs.Items[0].Status = s
		if err := c.Status().Update(t.Context(), &jobs.Items[0]); err != nil {
			t.Error(err)
			return
		}
		time.Sleep(20 * time.Millisecond) // time for the trial to read the state
	}
}

func in(condition, message string) v1alpha1.MPIJobStatus {
	return v1alpha1.MPIJobStatus{Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "R", Message: message}}}
}

func TestTrial(t *testing.T) {
	failed := in(v1alpha1.ConditionFailed, "it failed")
	failed.FirstFailure = &v1alpha1.Failure{Reason: "RankKilled", Message: "rank 3 was killed"}
	for what, c := range map[string]struct {
		states []v1alpha1.MPIJobStatus
		err    string
		out    string
		left   int
	}{
		"well":        {[]v1alpha1.MPIJobStatus{in(v1alpha1.ConditionPending, "pods are made"), in(v1alpha1.ConditionComplete, "done")}, "", "Complete (R): done", 0},
		"failed":      {[]v1alpha1.MPIJobStatus{failed}, "the trial job has failed: RankKilled: rank 3 was killed; see: kubectl --namespace here describe mpijob outrigger-trial-", "Failed (R)", 1},
		"stuck":       {[]v1alpha1.MPIJobStatus{in(v1alpha1.ConditionPending, "no node")}, "not ended in time, last seen: Pending (R): no node", "", 1},
		"no operator": {nil, "no state: does the operator run?", "2 pods", 1},
	} {
		k := cluster(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if strings.Contains(c.err, "last seen") || c.states == nil {
			ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		}
		played := make(chan struct{})
		go func() { defer close(played); play(t, k, c.states...) }()
		var out bytes.Buffer
		err := (&Trial{Client: k, Namespace: "here", Image: "examples", Out: &out, Look: 2 * time.Millisecond}).Run(ctx)
		cancel()
		<-played
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) || !strings.Contains(out.String(), c.out) {
			t.Errorf("%s: %v, want %q\n%s", what, err, c.err, out.String())
		}
		if strings.HasPrefix(c.err, "the trial") && !errors.Is(err, ErrFailed) {
			t.Errorf("%s: %v is no ErrFailed", what, err)
		}
		var jobs v1alpha1.MPIJobList
		if err := k.List(t.Context(), &jobs); err != nil || len(jobs.Items) != c.left {
			t.Errorf("%s: %d jobs are left, want %d (%v)", what, len(jobs.Items), c.left, err)
		}
	}
}

// TestPrivateRegistry: the job's pods pull images with the installation's Secrets, and have
// its tolerations.
func TestPrivateRegistry(t *testing.T) {
	taint := corev1.Toleration{Key: "hpc", Operator: corev1.TolerationOpExists}
	s := (&Trial{Namespace: "here", Image: "examples", Secrets: []string{"registry", "mirror"}, Tolerations: []corev1.Toleration{taint}}).job().Spec.Template.Spec
	if len(s.ImagePullSecrets) != 2 || s.ImagePullSecrets[0].Name != "registry" || s.ImagePullSecrets[1].Name != "mirror" || len(s.Tolerations) != 1 || s.Tolerations[0] != taint {
		t.Errorf("pull secrets %v, tolerations %v", s.ImagePullSecrets, s.Tolerations)
	}
}
