package controller

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// limited applies a LimitRange to a container as the API server does, and returns the
// API server's error text.
func limited(c *corev1.Container, item *corev1.LimitRangeItem) string {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit, has := c.Resources.Limits[name]
		if preset, ok := item.Default[name]; !has && ok {
			limit, has = preset, true
		}
		request, asks := c.Resources.Requests[name]
		least, floor := item.Min[name]
		switch {
		case floor && (!asks || request.Cmp(least) < 0):
			return "minimum " + string(name) + " usage per Container is " + least.String() + ", but request is " + request.String()
		case has && asks && request.Cmp(limit) > 0:
			return "the request of " + string(name) + " must be less than or equal to the limit of " + limit.String()
		}
	}
	return ""
}

// TestLimitRanges: the containers that are added to a pod comply with the LimitRanges
// of its namespace, unless the job sets other values.
func TestLimitRanges(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if text != "" {
				l[name] = resource.MustParse(text)
			}
		}
		return l
	}
	for what, c := range map[string]struct {
		item corev1.LimitRangeItem
		job  v1alpha1.SidecarResources
		cpu  string // CPU request of the sidecar
		ok   bool
	}{
		"none":                        {corev1.LimitRangeItem{}, v1alpha1.SidecarResources{}, "250m", true},
		"a floor":                     {corev1.LimitRangeItem{Min: list("100m", "128Mi")}, v1alpha1.SidecarResources{}, "250m", true},
		"a floor, and the job's word": {corev1.LimitRangeItem{Min: list("100m", "128Mi")}, v1alpha1.SidecarResources{Requests: list("250m", ""), Limits: list("1", "")}, "250m", true},
		"a high floor":                {corev1.LimitRangeItem{Min: list("400m", "4Gi")}, v1alpha1.SidecarResources{}, "400m", true},
		"a ceiling":                   {corev1.LimitRangeItem{Default: list("200m", "256Mi"), DefaultRequest: list("50m", "64Mi")}, v1alpha1.SidecarResources{}, "200m", true},
		"a ceiling, and a limit":      {corev1.LimitRangeItem{Default: list("200m", "256Mi")}, v1alpha1.SidecarResources{Limits: list("1", "")}, "1", true},
		"a ceiling, and a request":    {corev1.LimitRangeItem{Default: list("200m", "256Mi")}, v1alpha1.SidecarResources{Requests: list("300m", "")}, "300m", false},
		"both":                        {corev1.LimitRangeItem{Min: list("100m", ""), Default: list("100m", "")}, v1alpha1.SidecarResources{}, "100m", true},
	} {
		t.Run(what, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			c.item.Type = corev1.LimitTypeContainer
			pods := corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: list("7", "")} // does not apply to containers
			_, api, look := beginningJob(t, &now, &corev1.LimitRange{
				ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{pods, c.item}},
			})
			j := read(t, api, "cg", new(v1alpha1.MPIJob))
			j.Spec.Sidecar.Resources = c.job
			if err := api.Update(t.Context(), j); err != nil {
				t.Fatal(err)
			}
			look()
			b := read(t, api, "cg-0", new(batchv1.Job))
			ok := true
			for i := range b.Spec.Template.Spec.InitContainers {
				added := &b.Spec.Template.Spec.InitContainers[i]
				if text := limited(added, &c.item); text != "" {
					ok = false
					t.Log(added.Name, text)
				}
				if request := added.Resources.Requests[corev1.ResourceCPU]; added.Name == names.ContainerSidecar && request.Cmp(resource.MustParse(c.cpu)) != 0 {
					t.Errorf("the sidecar requests %s, want %s", request.String(), c.cpu)
				}
			}
			if ok != c.ok {
				t.Errorf("taken: %v, want %v", ok, c.ok)
			}
		})
	}
}

// TestUsersOfTheNamespace: the sidecars of an MPIJob get a user id of the range of the
// namespace.
func TestUsersOfTheNamespace(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for annotation, want := range map[string]int64{"": 65532, "1000680000/10000": 1000689999, "none": 65532} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hpc", Annotations: map[string]string{"openshift.io/sa.scc.uid-range": annotation}}}
		_, api, look := beginningJob(t, &now, n)
		look()
		for _, c := range read(t, api, "cg-0", new(batchv1.Job)).Spec.Template.Spec.InitContainers {
			if user := c.SecurityContext.RunAsUser; user == nil || *user != want {
				t.Errorf("%q: %s runs as %v, want %d", annotation, c.Name, user, want)
			}
		}
	}
}
