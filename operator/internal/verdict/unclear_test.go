package verdict

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestRefusalIsQuoted: 10 s after the Job could make the pods, the condition says why
// they are not made, and how to resolve it if the job can.
func TestRefusalIsQuoted(t *testing.T) {
	for refusal, within := range map[string][]string{
		`FailedCreate: Error creating: pods "cg-0-0-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`:       {"2 of 2 pods are not made: ", "runAsNonRoot"},
		`FailedCreate: Error creating: pods "cg-0-0-x" is forbidden: minimum cpu usage per Container is 1, but request is 250m`:            {"minimum cpu usage", "sidecar.resources"},
		`FailedCreate: Error creating: pods "cg-0-0-x" is forbidden: failed quota: q: must specify limits.cpu for: outrigger`:              {"must specify limits.cpu", "sidecar.resources"},
		`FailedCreate: Error creating: Pod "x" is invalid: spec.initContainers[1].resources.requests: Invalid value: "250m": must be less`: {"Invalid value", "sidecar.resources"},
		`FailedCreate: ` + strings.Repeat("x", 5000): {"xxx"},
	} {
		s := begun(t)
		s.o.Pods = nil
		s.next(Apply, v1alpha1.ConditionPending)
		o, p := s.o, Plan{}
		p.Status, p.Action = s.job.Status, Apply
		if job, pod, left := Unclear(&o, &p); job || pod != nil || left != unclearAfter {
			t.Errorf("at first: Job %v, pod %v, in %v", job, pod, left)
		}
		s.o.Now = at(10)
		o = s.o
		if job, pod, left := Unclear(&o, &p); !job || pod != nil || left != 0 {
			t.Errorf("after 10 s: Job %v, pod %v, in %v", job, pod, left)
		}
		s.o.Told.Refusal, s.o.Told.Remedy = refusal, Remedy(refusal, nil)
		s.next(Apply, v1alpha1.ConditionPending)
		c := condition(s.job, v1alpha1.ConditionPending)
		for _, want := range within {
			if c.Reason != v1alpha1.ReasonPodsMissing || !strings.Contains(c.Message, want) {
				t.Errorf("%s: %s, want %q", c.Reason, c.Message, want)
			}
		}
	}
}

// TestRemedyNamesTheContainer checks that, if a LimitRange or a quota refuses a pod, the message
// names the container, which the API server often does not, and the fields of the MPIJob to change,
// which are not those of the pod.
func TestRemedyNamesTheContainer(t *testing.T) {
	memory := func(name, request, limit string) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(request)}, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)},
		}}
	}
	spec := &corev1.PodSpec{
		InitContainers: []corev1.Container{memory("outrigger-install", "648Mi", "648Mi"), memory("outrigger", "648Mi", "648Mi")},
		Containers:     []corev1.Container{memory("app", "8Mi", "128Mi")},
	}
	for refusal, want := range map[string]string{
		"minimum memory usage per Container is 16Mi, but request is 8Mi":                                                            "of container app the template's resources say what it requests and is limited to",
		"maximum memory usage per Container is 256Mi, but limit is 648Mi":                                                           "container outrigger-install, outrigger has the memory that its ranks need, or what sidecar.resources says beyond that: lower memory.arena, ranksPerPod or that, or have the LimitRange raised",
		"[minimum memory usage per Container is 16Mi, but request is 8192Ki, maximum cpu usage per Container is 1, but limit is 2]": "of container app the template's resources say what it requests and is limited to",
		"minimum memory usage per Container is 16Mi, but request is 9Mi":                                                            "of container outrigger, outrigger-install sidecar.resources, of the MPIJob or of the chart, says it",
		"failed quota: team: must specify limits.cpu for: app,outrigger":                                                            "of container app the template's resources say what it requests and is limited to; of container outrigger sidecar.resources, of the MPIJob or of the chart, says it",
		"failed quota: team: must specify limits.cpu for: app; limits.memory for: outrigger":                                        "of container app the template's resources say what it requests and is limited to; of container outrigger sidecar.resources, of the MPIJob or of the chart, says it",
		"exceeded quota: team, requested: pods=1":                                                                                   "",
	} {
		if got := Remedy("FailedCreate: "+refusal, spec); got != want {
			t.Errorf("%s: %q, want %q", refusal, got, want)
		}
	}
}

// TestOnePodsWait: if pods of a job do not start, the condition names one of them with
// what it waits for, and so does the message of a deadline.
func TestOnePodsWait(t *testing.T) {
	for name, c := range map[string]struct {
		node, waits, want string
	}{
		"a Secret":    {"node1", `FailedMount: MountVolume.SetUp failed for volume "key": secret "licence" not found`, `pod cg-0-1-x: FailedMount: MountVolume.SetUp failed for volume "key": secret "licence" not found`},
		"a scheduler": {"", "", `pod cg-0-1-x has no node, and no scheduler has said why: does its scheduler "theirs" run?`},
		"an image":    {"node1", `Pulling: Pulling image "registry.invalid/x"`, `pod cg-0-1-x: Pulling: Pulling image "registry.invalid/x"`},
	} {
		for _, pending := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				s := newStory(t)
				s.next(Apply, v1alpha1.ConditionPending)
				s.o.Batch = begun(t).o.Batch
				s.pods(0)
				deadline := int64(60)
				if s.job.Spec.RunPolicy.ActiveDeadlineSeconds = &deadline; pending {
					s.job.Spec.RunPolicy.ActiveDeadlineSeconds, s.job.Spec.RunPolicy.PendingDeadlineSeconds = nil, &deadline
				}
				p := s.o.Pods[1]
				p.Spec.NodeName, p.Spec.SchedulerName, p.Status = c.node, "theirs", corev1.PodStatus{Phase: corev1.PodPending}
				s.next(Apply, v1alpha1.ConditionPending)
				s.o.Now = at(10)
				o, plan := s.o, Plan{Action: Apply, Status: s.job.Status}
				if job, pod, _ := Unclear(&o, &plan); job || pod != p {
					t.Fatalf("Job %v, pod %v are asked about", job, pod)
				}
				s.o.Told = Told{Pod: p.Name, Waits: c.waits}
				s.next(Apply, v1alpha1.ConditionPending)
				if m := condition(s.job, v1alpha1.ConditionPending).Message; !strings.HasPrefix(m, "2 of 4 ranks run; ") || !strings.Contains(m, c.want) {
					t.Errorf("message %q, want %q", m, c.want)
				}
				s.o.Now = at(60)
				s.next(Stop, v1alpha1.ConditionFailed)
				if m := s.job.Status.FirstFailure.Message; !strings.Contains(m, c.want) {
					t.Errorf("the failure is %q, want %q in it", m, c.want)
				}
			})
		}
	}
	s := begun(t) // a running job reads no events
	o, plan := s.o, Plan{Action: Apply, Status: s.job.Status}
	if job, pod, left := Unclear(&o, &plan); job || pod != nil || left != time.Duration(0) {
		t.Errorf("of a job that runs: %v, %v, %v", job, pod, left)
	}
}

// TestWhatHasNoEvent: if no event says what a pod waits for, the pod's status and spec
// are used.
func TestWhatHasNoEvent(t *testing.T) {
	always, card, template := corev1.ContainerRestartPolicyAlways, "card", "cards"
	runs := func(p *corev1.Pod, name string, since float64) {
		p.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: &always}, {Name: "stage-in"}}
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{
			Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at(since))}},
		})
	}
	for what, c := range map[string]struct {
		change      func(p *corev1.Pod)
		waits, want string
	}{
		"an init container that runs": {func(p *corev1.Pod) { runs(p, "stage-in", 30) }, "Unhealthy: Startup probe failed", "pod cg-0-1-x: init container stage-in has run since 12:00:30 UTC, and the ranks start when it has ended; its output: `kubectl logs cg-0-1-x -c stage-in`"},
		"one that has just begun":     {func(p *corev1.Pod) { runs(p, "stage-in", 55) }, "Pulling: Pulling image", "pod cg-0-1-x: Pulling: Pulling image"},
		"a native sidecar that runs":  {func(p *corev1.Pod) { runs(p, "proxy", 10) }, "Pulling: Pulling image", "pod cg-0-1-x: Pulling: Pulling image"},
		"a claim": {func(p *corev1.Pod) {
			p.Spec.NodeName = ""
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: &card}, {Name: "b", ResourceClaimTemplateName: &template}}
		}, "", "pod cg-0-1-x has no node, and gets one when its resource claims are there, as `kubectl get resourceclaims` shows: card, one of the template cards"},
		"a container that is made": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "solver", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
		}, "", "pod cg-0-1-x: container solver: ContainerCreating"},
	} {
		s := newStory(t)
		s.next(Apply, v1alpha1.ConditionPending)
		s.o.Batch = begun(t).o.Batch
		s.pods(0)
		p := s.o.Pods[1]
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
		c.change(p)
		s.o.Now = at(60)
		s.o.Told = Told{Pod: p.Name, Waits: c.waits}
		s.next(Apply, v1alpha1.ConditionPending)
		if m := condition(s.job, v1alpha1.ConditionPending).Message; m != "2 of 4 ranks run; "+c.want {
			t.Errorf("%s: %q, want %q", what, m, c.want)
		}
	}
}

// TestMemoryOfTheSidecarIsTold: the message about a pod that no node has memory for
// names the part of the sidecar, and the fields of the job that set it.
func TestMemoryOfTheSidecarIsTold(t *testing.T) {
	for message, told := range map[string]bool{"0/2 nodes are available: 2 Insufficient memory.": true, "0/2 nodes are available: 2 Insufficient cpu.": false} {
		s := begun(t)
		p := s.o.Pods[0]
		p.Spec.NodeName, p.Spec.InitContainers = "", []corev1.Container{{Name: "outrigger", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Ti")}}}}
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message}}}
		s.next(Apply, v1alpha1.ConditionPending)
		if c := condition(s.job, v1alpha1.ConditionPending); c.Reason != v1alpha1.ReasonUnschedulable || strings.Contains(c.Message, "a memory of 2Ti, which memory.arena") != told {
			t.Errorf("%+v", c)
		}
	}
}

// TestSidecarOfTheUsersEndsAgainAndAgain: the message of a running job warns of a
// container that is restarted repeatedly.
func TestSidecarOfTheUsersEndsAgainAndAgain(t *testing.T) {
	s := begun(t)
	add := func(name string, restarts int32) {
		s.o.Pods[1].Status.InitContainerStatuses = append(s.o.Pods[1].Status.InitContainerStatuses, corev1.ContainerStatus{
			Name: name, RestartCount: restarts, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}},
		})
	}
	add("proxy", 1)
	s.next(Apply, v1alpha1.ConditionRunning)
	if m := condition(s.job, v1alpha1.ConditionRunning).Message; m != "all 4 ranks have been started" {
		t.Error(m)
	}
	add("shipper", loopsAfter)
	s.next(Apply, v1alpha1.ConditionRunning)
	if m := condition(s.job, v1alpha1.ConditionRunning).Message; !strings.HasSuffix(m, "; container shipper of pod cg-0-1-x ends and is started again and again, with exit code 3: `kubectl logs cg-0-1-x -c shipper --previous`") {
		t.Error(m)
	}
}

// TestWebhookIsOff: the message of a job that waits for pods of another controller says
// that they cannot get a sidecar.
func TestWebhookIsOff(t *testing.T) {
	for _, off := range []bool{true, false} {
		s := newStory(t)
		s.job.Spec.PodManagement, s.o.NoWebhook = v1alpha1.PodsExternal, off
		s.next(Apply, v1alpha1.ConditionPending)
		if c := condition(s.job, v1alpha1.ConditionPending); strings.Contains(c.Message, "webhook.enabled") != off {
			t.Errorf("off %v: %s", off, c.Message)
		}
	}
}

// TestPodsOfOthersAreMissing: after a while, the message of a job names the missing
// pods of another controller, the labels of a pod of the job, and why the last one was
// refused.
func TestPodsOfOthersAreMissing(t *testing.T) {
	for _, there := range []int{0, 1} {
		for _, refusal := range []string{"", "PodRefused: pod x: the pod has no number"} {
			s := newStory(t)
			s.job.Spec.PodManagement = v1alpha1.PodsExternal
			s.pods(0)
			s.o.Pods = s.o.Pods[:there]
			s.next(Apply, v1alpha1.ConditionPending)
			if m := condition(s.job, v1alpha1.ConditionPending).Message; strings.Contains(m, "missing") {
				t.Errorf("at first: %s", m)
			}
			s.o.Now = at(11)
			o, plan := s.o, Plan{Action: Apply, Status: s.job.Status}
			if job, _, _ := Unclear(&o, &plan); !job {
				t.Fatal("the events about refusals are not requested")
			}
			s.o.Told.Refusal = refusal
			s.next(Apply, v1alpha1.ConditionPending)
			m := condition(s.job, v1alpha1.ConditionPending).Message
			numbers := []string{"0-1", "1"}[there]
			if !strings.Contains(m, `; pods are missing, of the numbers `+numbers+`: a pod of this job has the labels outrigger.dev/inject: "true", outrigger.dev/job-name: cg and its number`) || !strings.Contains(m, refusal) {
				t.Errorf("%d pods: %s", there, m)
			}
		}
	}
}

// TestTwoPodsOfOneNumber: two pods that were made at once may have the same number. The
// sidecar of the second one gets no certificate and ends, which does not fail the job;
// the message says so.
func TestTwoPodsOfOneNumber(t *testing.T) {
	s := newStory(t)
	s.job.Spec.PodManagement = v1alpha1.PodsExternal
	s.next(Apply, v1alpha1.ConditionPending)
	s.pods(0)
	p := s.o.Pods[1]
	p.Labels = s.o.Pods[0].Labels
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{}
	p.Status.InitContainerStatuses[0] = corev1.ContainerStatus{Name: "outrigger", LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(at(5))}}}
	s.next(Apply, v1alpha1.ConditionPending)
	s.o.Now = at(20)
	s.next(Apply, v1alpha1.ConditionPending)
	if m := condition(s.job, v1alpha1.ConditionPending).Message; !strings.Contains(m, "of the numbers 1: ") || !strings.Contains(m, "; pod cg-0-1-x has the number 0, which pod cg-0-0-x has: delete pod cg-0-1-x") {
		t.Error(m)
	}
	// The pod is deleted, as the message says. Its application may run by then, and waits for the
	// sidecar: the job must still be Pending.
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at(6))}}
	p.Status.InitContainerStatuses[0].Started = new(true)
	gone := metav1.NewTime(at(50))
	p.DeletionTimestamp = &gone
	s.o.Now = at(21)
	s.next(Apply, v1alpha1.ConditionPending)
}
