package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
)

// cluster has one MPIJob of 4 pods, and some pods.
type cluster struct {
	client.Reader
	job      v1alpha1.MPIJob
	pods     []corev1.Pod
	document *corev1.ConfigMap // the job document; nil: there is none

	listed, asked int
}

func (c *cluster) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if document, is := o.(*corev1.ConfigMap); is {
		if c.document == nil {
			return apierrors.NewNotFound(corev1.Resource("configmaps"), "")
		}
		c.document.DeepCopyInto(document)
		return nil
	}
	c.asked++
	c.job.DeepCopyInto(o.(*v1alpha1.MPIJob))
	return nil
}

// List returns the pods with one number, and counts them.
func (c *cluster) List(_ context.Context, l client.ObjectList, how ...client.ListOption) error {
	o := new(client.ListOptions).ApplyOptions(how)
	for _, p := range c.pods {
		if o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(p.Labels)) {
			l.(*corev1.PodList).Items = append(l.(*corev1.PodList).Items, p)
			c.listed++
		}
	}
	return nil
}

// ofPlace selects pods as the index of the cache does.
func ofPlace(job string, attempt, number int32) client.ListOption {
	return client.MatchingLabels{
		names.LabelJob: job, names.LabelAttempt: fmt.Sprint(attempt), batchv1.JobCompletionIndexAnnotation: fmt.Sprint(number),
	}
}

// TestPodsOfALargeJob: the admission of a pod reads only the pods of the job that have the
// same number.
func TestPodsOfALargeJob(t *testing.T) {
	c := newCluster()
	const pods = 256
	c.job.Spec.Ranks = pods
	h := &Pods{Client: c, Live: c, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace}
	for i := range pods {
		p := pod(fmt.Sprint("p", i), map[string]string{names.LabelPodNumber: fmt.Sprint(i)})
		if err := h.join(t.Context(), "hpc", p); err != nil {
			t.Fatal(err)
		}
		c.pods = append(c.pods, *p)
	}
	if c.listed > 0 {
		t.Errorf("%d pods were looked at", c.listed)
	}
}

func newCluster() *cluster {
	c := new(cluster)
	c.job.Name, c.job.Spec.PodManagement, c.job.Spec.Ranks, c.job.Spec.RanksPerPod = "cg", v1alpha1.PodsExternal, 4, 1
	return c
}

// pod returns a pod that asks for a sidecar.
func pod(name string, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{names.LabelJob: "cg"}}}
	for k, v := range labels {
		p.Labels[k] = v
	}
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Containers = []corev1.Container{{Name: "solver", Image: "x", Command: []string{"/solver"}}}
	return p
}

func jobSet(index, jobs, inside string) map[string]string {
	return map[string]string{labelJobSet: "set", labelJobIndex: index, labelJobs: jobs, batchv1.JobCompletionIndexAnnotation: inside}
}

// leaderWorkerSet returns the labels of a pod of a LeaderWorkerSet. The StatefulSets that it
// uses number leaders by group, and workers within their group.
func leaderWorkerSet(group, worker string) map[string]string {
	l := map[string]string{labelLeaderSet: "set", labelGroup: group, labelWorker: worker, "apps.kubernetes.io/pod-index": worker}
	if worker == "0" {
		l["apps.kubernetes.io/pod-index"] = group
	}
	return l
}

// TestNumbers checks the sources of a pod's number, and that no two pods have the same one.
func TestNumbers(t *testing.T) {
	own := map[string]string{names.LabelPodNumber: "2"}
	for what, c := range map[string]struct {
		labels map[string]string
		number string
		refuse string
	}{
		"its own label":                           {own, "2", ""},
		"an Indexed Job":                          {map[string]string{batchv1.JobCompletionIndexAnnotation: "3"}, "3", ""},
		"the first Job of a JobSet":               {jobSet("0", "2", "1"), "1", ""},
		"the second Job of a JobSet":              {jobSet("1", "2", "1"), "3", ""},
		"Jobs of different sizes":                 {jobSet("1", "3", "0"), "", "each of them needs as many pods"},
		"a pod that equal Jobs would not have":    {jobSet("0", "2", "2"), "", "number 2 of its Job in JobSet set, whose Jobs have 2 pods each"},
		"a JobSet that says no index":             {map[string]string{labelJobSet: "set", batchv1.JobCompletionIndexAnnotation: "0"}, "", "do not say of which of its Jobs"},
		"a StatefulSet":                           {map[string]string{"apps.kubernetes.io/pod-index": "1"}, "1", ""},
		"a leader":                                {leaderWorkerSet("0", "0"), "0", ""},
		"a worker":                                {leaderWorkerSet("0", "1"), "1", ""},
		"a worker of the second group":            {leaderWorkerSet("1", "1"), "3", ""},
		"a worker beyond its group":               {leaderWorkerSet("0", "2"), "", "do not say which of its pods"},
		"a LeaderWorkerSet without index":         {map[string]string{labelLeaderSet: "set", "apps.kubernetes.io/pod-index": "1"}, "", "do not say which of its pods"},
		"a LeaderWorkerSet with a number of ours": {map[string]string{labelLeaderSet: "set", names.LabelPodNumber: "2"}, "2", ""},
		"of no controller":                        {nil, "", "the pod has no number"},
		"beyond the job":                          {map[string]string{names.LabelPodNumber: "4"}, "", "number 4 of a job of 4 pods"},
	} {
		t.Run(what, func(t *testing.T) {
			h := &Pods{Client: newCluster(), Live: newCluster(), Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace}
			p := pod("p", c.labels)
			p.Annotations = map[string]string{annotationGroup: "2"}
			err := h.join(t.Context(), "hpc", p)
			if c.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), c.refuse) {
					t.Errorf("%v, want %q", err, c.refuse)
				}
				return
			}
			if err != nil || p.Labels[batchv1.JobCompletionIndexAnnotation] != c.number {
				t.Errorf("number %s, %v", p.Labels[batchv1.JobCompletionIndexAnnotation], err)
			}
		})
	}
}

// TestTwoOfANumber: the second pod with a number is refused, unless a node has rejected the
// first one.
func TestTwoOfANumber(t *testing.T) {
	c := newCluster()
	h := &Pods{Client: c, Live: c, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace}
	labels := map[string]string{names.LabelPodNumber: "2"}
	first := pod("first", labels)
	if err := h.join(t.Context(), "hpc", first); err != nil {
		t.Fatal(err)
	}
	c.pods = []corev1.Pod{*first}
	if err := h.join(t.Context(), "hpc", pod("second", labels)); err == nil || !strings.Contains(err.Error(), "has a pod of number 2 already: first") {
		t.Errorf("the second pod: %v", err)
	}
	c.pods[0].Status.Phase = corev1.PodFailed
	if err := h.join(t.Context(), "hpc", pod("second", labels)); err != nil {
		t.Errorf("the pod after one that was turned away: %v", err)
	}
}

// TestPodsOfAnEarlierJob: pods of a deleted MPIJob block their numbers for the MPIJob that is
// created again under the name, but only while they run.
func TestPodsOfAnEarlierJob(t *testing.T) {
	c := newCluster()
	h := &Pods{Client: c, Live: c, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace}
	labels := map[string]string{names.LabelPodNumber: "2"}
	c.job.UID = "1"
	old := pod("old", labels)
	if err := h.join(t.Context(), "hpc", old); err != nil || old.Labels[names.LabelJobUID] != "1" {
		t.Fatalf("%v, labels %v", err, old.Labels)
	}
	c.pods, c.job.UID = []corev1.Pod{*old}, "2"
	if err := h.join(t.Context(), "hpc", pod("new", labels)); err == nil || !strings.Contains(err.Error(), "pod old of an earlier MPIJob cg has the number 2 until it has ended") {
		t.Errorf("while one runs: %v", err)
	}
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		c.pods[0].Status.Phase, c.pods[0].Status.ContainerStatuses = phase, make([]corev1.ContainerStatus, 1)
		p := pod("new", labels)
		if err := h.join(t.Context(), "hpc", p); err != nil || p.Labels[names.LabelJobUID] != "2" {
			t.Errorf("while there is one that has %s: %v, labels %v", phase, err, p.Labels)
		}
	}
	c.job.DeletionTimestamp = new(metav1.Now())
	if err := h.join(t.Context(), "hpc", pod("new", labels)); err == nil || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("of a job that is being deleted: %v", err)
	}
}

// TestCacheOfAnEarlierJob: while the cache still has a deleted MPIJob, pods join the one that
// was created again under its name. The API server is asked once a second.
func TestCacheOfAnEarlierJob(t *testing.T) {
	cache, server := newCluster(), newCluster()
	cache.job.UID, server.job.UID = "1", "1"
	cache.job.Spec.Ranks, server.job.Spec.Ranks = 256, 256
	now := time.Unix(1000, 0)
	h := &Pods{Client: cache, Live: server, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace, Now: func() time.Time { return now }}
	next := 0
	join := func(uid string) {
		t.Helper()
		p := pod("p", map[string]string{names.LabelPodNumber: fmt.Sprint(next)})
		next++
		if err := h.join(t.Context(), "hpc", p); err != nil || p.Labels[names.LabelJobUID] != uid {
			t.Errorf("%v, labels %v, want to join %s", err, p.Labels, uid)
		}
	}
	for range 100 {
		join("1")
	}
	if server.asked != 1 {
		t.Errorf("the API server was asked %d times for a job that it has just shown", server.asked)
	}
	server.job.UID = "2"
	now = now.Add(confirmedFor)
	join("2")
	join("2") // the cache is still behind
	cache.job.UID = "2"
	asked := server.asked
	join("2")
	if server.asked != asked {
		t.Error("the API server was asked again for a job that it has just shown")
	}
}

// TestNobodyComesBack: once all ranks have been started, no pod can join any more. Controllers
// for permanent workloads replace pods that have ended.
func TestNobodyComesBack(t *testing.T) {
	c := newCluster()
	h := &Pods{Client: c, Live: c, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace}
	for _, running := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
		c.job.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRunning, Status: running}}
		if err := h.join(t.Context(), "hpc", pod("p", map[string]string{names.LabelPodNumber: "0"})); err == nil || !strings.Contains(err.Error(), "none of them can be started again") {
			t.Errorf("running %s: %v", running, err)
		}
	}
}

// TestExternalPodsThatCannotJoin: a setting that the schema refuses for the operator's own
// pods is refused for pods of other controllers as well.
func TestExternalPodsThatCannotJoin(t *testing.T) {
	for want, change := range map[string]func(*corev1.PodSpec){
		"restartPolicy": func(s *corev1.PodSpec) { s.RestartPolicy = corev1.RestartPolicyAlways },
		"hostNetwork":   func(s *corev1.PodSpec) { s.HostNetwork = true },
		"hostPID":       func(s *corev1.PodSpec) { s.HostPID = true },
		"has a name that": func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: names.ContainerSidecar, Command: []string{"/usr/local/bin/outrigger-sidecar"}}}
		},
		"which is the sidecar's": func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: names.VolumeToken, MountPath: "/t"}}
		},
	} {
		h := &Pods{Client: newCluster(), Live: newCluster(), Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace}
		p := pod("p", map[string]string{names.LabelPodNumber: "0"})
		change(&p.Spec)
		if err := h.join(t.Context(), "hpc", p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestPodsThatAlwaysRestart: StatefulSets make pods with restart policy Always. Such a pod may
// join if its container has restart policy Never and no rules by which it is restarted anyway.
func TestPodsThatAlwaysRestart(t *testing.T) {
	never, always, onFailure := corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure
	for what, c := range map[string]struct {
		own   *corev1.ContainerRestartPolicy
		rules []corev1.ContainerRestartRule
		joins bool
	}{
		"nothing said": {nil, nil, false},
		"always":       {&always, nil, false},
		"on failure":   {&onFailure, nil, false},
		"never":        {&never, nil, true},
		"never but":    {&never, []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}, false},
	} {
		h := &Pods{Client: newCluster(), Live: newCluster(), Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace}
		p := pod("p", map[string]string{"apps.kubernetes.io/pod-index": "1"})
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		p.Spec.Containers[0].RestartPolicy, p.Spec.Containers[0].RestartPolicyRules = c.own, c.rules
		if err := h.join(t.Context(), "hpc", p); (err == nil) != c.joins || err != nil && !strings.Contains(err.Error(), "restartPolicy: Never (Kubernetes 1.35") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestNamespaceThatIsNotWatched: if the pod's namespace is not watched, the refusal says so
// and names the watched ones, regardless of the caches' content.
func TestNamespaceThatIsNotWatched(t *testing.T) {
	watched := []string{"hpc", "physics"}
	for i := range 20 {
		watched = append(watched, "team"+string(rune('a'+i)))
	}
	h := &Pods{Client: newCluster(), Live: newCluster(), Watched: watched, OfPlace: ofPlace}
	if err := h.join(t.Context(), "physics", pod("p", map[string]string{names.LabelPodNumber: "0"})); err != nil {
		t.Errorf("a namespace that is watched: %v", err)
	}
	h.Client = nil // the caches are not read
	err := h.join(t.Context(), "elsewhere", pod("p", nil))
	if err == nil || !strings.Contains(err.Error(), "does not watch namespace elsewhere") || !strings.Contains(err.Error(), "it watches hpc, physics, ") || !strings.Contains(err.Error(), "teamh and 12 more (operator.watchNamespaces") {
		t.Errorf("%v", err)
	}
}

// TestPodsOfSeveralContainers: the application is found among a pod's containers and recorded
// on the pod. If it is not known, the refusal lists the containers.
func TestPodsOfSeveralContainers(t *testing.T) {
	c := newCluster()
	c.job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "solver"}}
	h := &Pods{Client: c, Live: c, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace}
	of := func(annotation string, containers ...string) *corev1.Pod {
		p := pod("p", map[string]string{names.LabelPodNumber: "0"})
		p.Spec.Containers = nil
		for _, name := range containers {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: "x", Command: []string{"/" + name}})
		}
		if annotation != "" {
			p.Annotations = map[string]string{names.AnnotationContainer: annotation}
		}
		return p
	}
	for want, p := range map[string]*corev1.Pod{
		"main": of("", "main"), "solver": of("", "proxy", "solver"), "other": of("other", "solver", "other"),
	} {
		err := h.join(t.Context(), "hpc", p)
		if err != nil || p.Annotations[names.AnnotationContainer] != want {
			t.Errorf("%v, annotations %v, want %s", err, p.Annotations, want)
		}
		for i := range p.Spec.Containers {
			if ranks := p.Spec.Containers[i].Command[0] == "/run/outrigger/bin/outrigger-launch"; ranks != (p.Spec.Containers[i].Name == want) {
				t.Errorf("want %s: container %s runs %v", want, p.Spec.Containers[i].Name, p.Spec.Containers[i].Command)
			}
		}
		if err := h.join(t.Context(), "hpc", p); err != nil {
			t.Errorf("the second time: %v", err)
		}
	}
	if err := h.join(t.Context(), "hpc", of("", "proxy", "main")); err == nil || !strings.Contains(err.Error(), "its containers are proxy, main") {
		t.Errorf("no application: %v", err)
	}
}

// TestPodsFollowTheirDocument: a pod keeps the names that its controller has given it, by
// which LWS_LEADER_ADDRESS, MASTER_ADDR and the coordinator of a JobSet resolve, unless the
// job document, made by an operator of an earlier release, has other names.
func TestPodsFollowTheirDocument(t *testing.T) {
	for _, peers := range []string{"", desired.ByIssuer, "cg", "cg-ranks"} {
		c := newCluster()
		c.job.Namespace = "hpc"
		host, want := "lead", "set"
		if peers == "cg" || peers == "cg-ranks" {
			host, want = "cg-0-", peers
		}
		if peers != "" {
			document, err := (&desired.Attempt{Job: &c.job, Peers: peers}).ConfigMap(&desired.Identity{ID: "1", CA: []byte("ca"), Issuer: bootstrap.Issuer{URL: "https://issuer.test/", CA: "ca", TokenFile: "/token"}})
			if err != nil {
				t.Fatal(err)
			}
			c.document = document
		}
		h := &Pods{Client: c, Live: c, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace}
		for i := range 3 {
			p := pod("p", map[string]string{names.LabelPodNumber: fmt.Sprint(i)})
			p.Spec.Hostname, p.Spec.Subdomain = "lead", "set"
			if err := h.join(t.Context(), "hpc", p); err != nil || p.Spec.Subdomain != want || strings.TrimSuffix(p.Spec.Hostname, fmt.Sprint(i)) != host {
				t.Errorf("%v, host %q, subdomain %q, the document has %q", err, p.Spec.Hostname, p.Spec.Subdomain, peers)
			}
		}
	}
}

// TestPodsWithinLimitRanges: the sidecars of other controllers' pods comply with the
// LimitRanges of the namespace, which are read at most once a second for a job.
func TestPodsWithinLimitRanges(t *testing.T) {
	c, reads := newCluster(), 0
	c.job.Namespace = "hpc"
	h := &Pods{Client: c, Live: c, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace, LimitsOf: func(context.Context, string) []corev1.LimitRange {
		reads++
		return []corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")},
		}}}}}
	}, Now: func() time.Time { return time.Unix(1000, 0) }}
	for i := range 4 {
		p := pod("p", map[string]string{names.LabelPodNumber: fmt.Sprint(i)})
		if err := h.join(t.Context(), "hpc", p); err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Spec.InitContainers {
			if c.Name == names.ContainerSidecar && c.Resources.Requests.Cpu().MilliValue() != 200 {
				t.Errorf("%s requests %v", c.Name, c.Resources.Requests)
			}
		}
	}
	if reads != 1 {
		t.Errorf("LimitRanges were read %d times", reads)
	}
}

// TestShapesOfLaterVersions: pods that always restart join from Kubernetes 1.35 on. With an
// earlier version, the refusal names the cluster's version. Pods of Jobs join in every
// version.
func TestShapesOfLaterVersions(t *testing.T) {
	never := corev1.ContainerRestartPolicyNever
	for _, c := range []struct {
		minor  string
		policy corev1.RestartPolicy
		want   string // part of the refusal; empty: the pod joins
	}{
		{"33", corev1.RestartPolicyAlways, "this cluster has Kubernetes 1.33, and from 1.35 on"},
		{"34+", corev1.RestartPolicyAlways, "this cluster has Kubernetes 1.34, and from 1.35 on"},
		{"34", corev1.RestartPolicyNever, ""},
		{"35", corev1.RestartPolicyAlways, ""},
		{"", corev1.RestartPolicyAlways, ""}, // the API server itself refuses what it does not support
		{"x", corev1.RestartPolicyAlways, ""},
	} {
		cl, asked := newCluster(), 0
		cl.job.Namespace = "hpc"
		now := time.Unix(1000, 0)
		h := &Pods{Client: cl, Live: cl, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace, MinorOf: func(context.Context) (int, error) {
			asked++
			return Minor(c.minor), nil
		}, Now: func() time.Time { return now }}
		for i := range 3 {
			p := pod("p", map[string]string{names.LabelPodNumber: fmt.Sprint(i)})
			p.Spec.RestartPolicy, p.Spec.Containers[0].RestartPolicy = c.policy, &never
			err := h.join(t.Context(), "hpc", p)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Kubernetes 1.%s, %s: %v", c.minor, c.policy, err)
			}
		}
		if want := map[bool]int{true: 0, false: 1}[c.policy == corev1.RestartPolicyNever]; asked != want {
			t.Errorf("Kubernetes 1.%s, %s: the version was read %d times, want %d", c.minor, c.policy, asked, want)
		}
		now = now.Add(minorFor)
		c.minor = "35" // the cluster is upgraded
		p := pod("p", map[string]string{names.LabelPodNumber: "3"})
		p.Spec.RestartPolicy, p.Spec.Containers[0].RestartPolicy = corev1.RestartPolicyAlways, &never
		if err := h.join(t.Context(), "hpc", p); err != nil {
			t.Errorf("after an upgrade: %v", err)
		}
	}
}

// TestUsersOfANamespace: sidecars of other controllers' pods get a user of the namespace's
// range, which is read at most once a second for a job. If the range cannot be read, the pod
// has to wait.
func TestUsersOfANamespace(t *testing.T) {
	c, reads := newCluster(), 0
	c.job.Namespace = "hpc"
	down := errors.New("down")
	h := &Pods{Client: c, Live: c, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace, UsersOf: func(context.Context, string) (inject.UIDs, error) {
		if reads++; reads == 1 {
			return inject.UIDs{}, down
		}
		return inject.UIDs{First: 1000, Count: 10}, nil
	}, Now: func() time.Time { return time.Unix(1000, 0) }}
	for i := range 4 {
		p := pod("p", map[string]string{names.LabelPodNumber: fmt.Sprint(i)})
		if err := h.join(t.Context(), "hpc", p); i == 0 {
			if !errors.Is(err, down) {
				t.Errorf("the first pod: %v", err)
			}
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Spec.InitContainers {
			if user := c.SecurityContext.RunAsUser; user == nil || *user != 1009 {
				t.Errorf("%s runs as %v", c.Name, user)
			}
		}
	}
	if reads != 2 {
		t.Errorf("the namespace was read %d times", reads)
	}
}

// TestRefusalIsTold: the refusal of a pod is recorded in an Event of the MPIJob that it names,
// except on a dry run.
func TestRefusalIsTold(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{false, true} {
		c, recorder := newCluster(), events.NewFakeRecorder(10)
		c.job.Namespace = "hpc"
		h := &Pods{Client: c, Live: c, Decoder: admission.NewDecoder(scheme), OfPlace: ofPlace, Events: recorder}
		p := pod("", map[string]string{names.LabelPodNumber: "9", names.LabelInject: "true"})
		p.GenerateName = "set-"
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "hpc", DryRun: &dry, Object: runtime.RawExtension{Raw: raw}}}
		if r := h.Handle(t.Context(), req); r.Allowed {
			t.Fatalf("%+v", r)
		}
		select {
		case e := <-recorder.Events:
			if dry || !strings.Contains(e, "Warning PodRefused pod set-*: ") || !strings.Contains(e, "number 9 of a job of 4 pods") {
				t.Errorf("dry run %v: %s", dry, e)
			}
		default:
			if !dry {
				t.Error("no Event tells of a pod that was refused")
			}
		}
	}
}
