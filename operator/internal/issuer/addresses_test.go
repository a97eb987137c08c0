package issuer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// placed is the state of a cluster whose pods can be selected by their labels.
type placed struct{ objects }

func (p placed) List(_ context.Context, into client.ObjectList, how ...client.ListOption) error {
	o := new(client.ListOptions)
	o.ApplyOptions(how)
	list := into.(*corev1.PodList)
	for _, have := range p.objects {
		if pod, ok := have.(*corev1.Pod); ok && pod.Namespace == o.Namespace && o.LabelSelector.Matches(labels.Set(pod.Labels)) {
			list.Items = append(list.Items, *pod)
		}
	}
	return nil
}

func asked(t *testing.T, server *httptest.Server, token, query string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+PathAddresses+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// member returns a pod of another controller that has number n of MPIJob cg.
func member(name string, n int, ip string, minute int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "hpc", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Unix(60*minute, 0),
		Labels: map[string]string{names.LabelJob: "cg", names.LabelAttempt: "0", batchv1.JobCompletionIndexAnnotation: fmt.Sprint(n), names.LabelJobUID: "job"},
	}}
	p.Status.PodIP, p.Status.Phase = ip, corev1.PodRunning
	p.Spec.InitContainers = []corev1.Container{{Name: names.ContainerSidecar}}
	return p
}

// TestAddressesOfPods: a sidecar receives the addresses of the pods of its job, as their
// statuses report them. Of several pods with one number, only the holder of the number is
// reported. A changed address is reported again. The content of the request has no influence.
func TestAddressesOfPods(t *testing.T) {
	job := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "cg", UID: "job"}}
	job.Spec.Ranks, job.Spec.RanksPerPod, job.Spec.PodManagement = 300, 1, v1alpha1.PodsExternal
	own := member("p", 0, "127.0.0.1", 1)
	own.UID = "u"
	both := member("both", 1, "10.0.0.1", 1)
	both.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}, {IP: "10.0.0.99"}}
	impostor, earlier, bare := member("late", 1, "10.0.0.66", 2), member("earlier", 2, "10.0.0.67", 0), member("bare", 2, "10.0.0.68", 0)
	earlier.Labels[names.LabelJobUID] = "another"
	bare.Spec.InitContainers = nil
	going, over, failed := member("going", 3, "10.0.0.69", 1), member("over", 4, "10.0.0.70", 1), member("failed", 5, "10.0.0.71", 1)
	going.DeletionTimestamp = &metav1.Time{}
	over.Status.Phase, failed.Status.Phase = corev1.PodSucceeded, corev1.PodFailed
	foreign, young, last := member("foreign", 6, "10.0.0.72", 1), member("young", 7, "", 1), member("last", 299, "10.0.1.43", 1)
	foreign.Namespace = "other"
	moving := member("moving", 2, "10.0.0.2", 2)
	garbled := member("garbled", 8, "evil.test", 1)
	live := placed{objects{job, own, both, impostor, earlier, bare, going, over, failed, foreign, young, last, moving, garbled}}
	s := &Server{Cache: live, Live: live, CheckAddress: true}
	server, token := served(t, s)
	s.OfPlace = ofLabels
	for _, c := range []struct {
		query  string
		status int
		want   string
	}{
		{"?part=0", http.StatusOK, `{"pods":{"0":["127.0.0.1"],"1":["10.0.0.1","fd00::1"],"2":["10.0.0.2"]}}`},
		{"?part=1", http.StatusOK, `{"pods":{"299":["10.0.1.43"]}}`},
		{"?part=2", http.StatusOK, `{"pods":{}}`},
		{"?part=0&job=other&namespace=other&address=10.6.6.6", http.StatusOK, `{"pods":{"0":["127.0.0.1"],"1":["10.0.0.1","fd00::1"],"2":["10.0.0.2"]}}`},
		{"", http.StatusBadRequest, "part is"},
		{"?part=-1", http.StatusBadRequest, "part is"},
		{"?part=65536", http.StatusBadRequest, "part is"},
		{"?part=" + strings.Repeat("9", 1000), http.StatusBadRequest, "part is"},
	} {
		if status, text := asked(t, server, token, c.query, "X-Forwarded-For", "10.6.6.6"); status != c.status || !strings.HasPrefix(text, c.want) {
			t.Errorf("%.40s: %d %s, want %d %s", c.query, status, text, c.status, c.want)
		}
	}
	moving.Status.PodIP = "10.0.0.222"
	if _, text := asked(t, server, token, "?part=0"); !strings.Contains(text, `"2":["10.0.0.222"]`) {
		t.Errorf("a pod that has another address: %s", text)
	}
	if status, text := asked(t, server, "made up", "?part=0"); status != http.StatusServiceUnavailable && status != http.StatusUnauthorized {
		t.Errorf("a token that is none: %d %s", status, text)
	}
	own.Status.PodIP = "10.9.9.9" // the caller's connection comes from another address
	if status, text := asked(t, server, token, "?part=0"); status != http.StatusForbidden || strings.Contains(text, "10.0.0.1") {
		t.Errorf("a token that was carried elsewhere: %d %s", status, text)
	}
	own.Status.PodIP, job.Spec.PodManagement = "127.0.0.1", ""
	if status, _ := asked(t, server, token, "?part=0"); status == http.StatusOK {
		t.Error("a pod that no Job has made is told of the pods of a job")
	}
}
