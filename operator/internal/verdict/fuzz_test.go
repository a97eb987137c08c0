package verdict

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// script makes choices from a fuzzer's bytes. When they are used up, all choices are 0.
type script struct {
	raw  []byte
	text string // text that the fuzzer chooses
}

func (s *script) pick(n int) int {
	if len(s.raw) == 0 {
		return 0
	}
	b := s.raw[0]
	s.raw = s.raw[1:]
	return int(b) % n
}

func (s *script) yes() bool { return s.pick(2) == 1 }

// time returns a time around noon, or any time.
func (s *script) time() metav1.Time {
	switch s.pick(6) {
	case 0:
		return metav1.Time{}
	case 1:
		var b [8]byte
		s.raw = s.raw[copy(b[:], s.raw):]
		return metav1.Unix(int64(binary.LittleEndian.Uint64(b[:])>>28), 0)
	}
	return metav1.NewTime(noon.Add(time.Duration(s.pick(256)-128) * time.Second))
}

func (s *script) words() string {
	switch s.pick(4) {
	case 0:
		return s.text
	case 1:
		return string((&podlife.Message{
			Kind: []podlife.Kind{podlife.KindRanks, podlife.KindSidecar, "other"}[s.pick(3)], Pod: s.pick(4),
			Failures: []podlife.Failure{{
				Rank: s.pick(8) - 1, Code: s.pick(256), Text: s.text, Time: s.time().Time,
				Reason: []podlife.Reason{podlife.RankExited, podlife.RankVanished, podlife.Terminated, podlife.SidecarLost, "9", podlife.Reason(s.text)}[s.pick(6)],
			}},
			Traffic: []podlife.Traffic{{Transport: s.text, Peers: s.pick(9)}, {Transport: "tcp"}, {Transport: "tcp"}},
		}).Encode())
	case 2:
		return fmt.Sprintf(`{"kind":"ranks","pod":1,"failures":[{"rank":%d,"exitCode":3,"reason":%q,"message":%q,"time":"9999-12-31T23:59:59-23:00"}]}`, s.pick(8), s.text, s.text)
	}
	return ""
}

func (s *script) container(name string) corev1.ContainerStatus {
	c := corev1.ContainerStatus{Name: name}
	end := func() *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{
			ExitCode: int32(s.pick(256)) - 1, Signal: int32(s.pick(16)), Message: s.words(), FinishedAt: s.time(),
			Reason: []string{"Error", "OOMKilled", "Completed", "ContainerStatusUnknown", "", s.text}[s.pick(6)],
		}
	}
	switch s.pick(5) {
	case 0:
		c.State.Running = &corev1.ContainerStateRunning{}
	case 1:
		c.State.Terminated = end()
	case 2:
		c.State.Waiting = &corev1.ContainerStateWaiting{Reason: []string{"ErrImagePull", s.text}[s.pick(2)], Message: s.text}
	case 3:
		c.State.Running, c.LastTerminationState.Terminated = &corev1.ContainerStateRunning{}, end()
	}
	return c
}

func (s *script) pod(i int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cg-0-", i), CreationTimestamp: s.time()}}
	p.Spec.NodeName = []string{"", "node0", s.text}[s.pick(3)]
	if n := s.pick(6); n > 0 { // also one pod too many, and pods without a number
		p.Labels = map[string]string{batchv1.JobCompletionIndexAnnotation: []string{"0", "1", "2", "-1", s.text}[n-1]}
	}
	if s.pick(4) == 1 {
		at := s.time()
		p.DeletionTimestamp = &at
		if s.yes() {
			p.DeletionGracePeriodSeconds = new(int64(s.pick(60)))
		}
	}
	p.Status.Phase = []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown, ""}[s.pick(6)]
	p.Status.Reason, p.Status.Message = []string{"", "Evicted", "UnexpectedAdmissionError", "OutOfcpu", s.text}[s.pick(5)], s.text
	for range s.pick(3) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s.container([]string{"solver", "other"}[s.pick(2)]))
	}
	for range s.pick(4) {
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s.container([]string{names.ContainerSidecar, names.ContainerInstall, ""}[s.pick(3)]))
	}
	for range s.pick(3) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type:   []corev1.PodConditionType{corev1.DisruptionTarget, corev1.PodScheduled, "Other"}[s.pick(3)],
			Status: []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, ""}[s.pick(3)], Reason: s.text, Message: s.text, LastTransitionTime: s.time(),
		})
	}
	return p
}

func (s *script) batch(j *v1alpha1.MPIJob) *batchv1.Job {
	if s.pick(4) == 0 {
		return nil
	}
	b := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "cg-0"}}
	b.Name = fmt.Sprint("cg-", AttemptOf(j))
	if s.pick(4) > 0 {
		at := s.time()
		b.Status.StartTime = &at
	}
	if n := s.pick(3); n > 0 {
		b.Spec.Suspend = new(n == 1)
	}
	if s.pick(3) == 1 {
		b.Status.Conditions = []batchv1.JobCondition{{
			Type:   []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed, batchv1.JobFailureTarget, batchv1.JobSuspended}[s.pick(4)],
			Status: corev1.ConditionTrue, Message: s.text,
			Reason: []string{batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonDeadlineExceeded, batchv1.JobReasonPodFailurePolicy, s.text}[s.pick(4)],
		}}
	}
	return b
}

func (s *script) policy(j *v1alpha1.MPIJob) {
	p := &j.Spec.RunPolicy
	if s.yes() {
		p.RestartLimit = new(int32(s.pick(3)))
	}
	if s.pick(4) == 1 {
		p.ActiveDeadlineSeconds = new(int64(1) << s.pick(63))
	}
	if s.pick(4) == 1 {
		p.TTLSecondsAfterFinished = new(int32(s.pick(256)))
	}
	if s.pick(4) == 1 {
		p.Suspend = new(s.yes())
	}
	if s.pick(4) == 1 {
		j.Spec.PodManagement = v1alpha1.PodsExternal
	}
}

// FuzzVerdict plays the life of a job from arbitrary observations, each with the status
// that the previous one led to. It checks that nothing panics, that at most one
// condition is True, that the API server would accept every status, that a finished job
// stays finished, and that an unchanged observation leads to no write.
func FuzzVerdict(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, "RankExited")
	f.Add([]byte{0, 1, 1, 1, 3, 1, 1, 2, 0, 1, 1, 0, 0, 1, 1, 255, 9, 1, 2, 4}, "\xff\xfe9")
	f.Add([]byte("the quick brown fox jumps over the lazy dog, again and again, whatever the weather"), "tcp")
	f.Fuzz(func(t *testing.T, raw []byte, text string) {
		s := &script{raw: raw, text: text}
		j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Name: "cg", Namespace: "hpc", Generation: 1, CreationTimestamp: metav1.NewTime(noon)}}
		j.Spec.Ranks, j.Spec.RanksPerPod = int32(1+s.pick(5)), int32(1+s.pick(3))
		j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "solver"}}
		s.policy(j)
		now := noon
		for range 8 {
			now = now.Add(time.Duration(s.pick(30)) * time.Second)
			o := &Observation{Job: j, Batch: s.batch(j), Now: now, NoProfile: s.pick(8) == 1}
			for i := range s.pick(5) {
				o.Pods = append(o.Pods, s.pod(i))
			}
			for range s.pick(12) {
				o.Transports = append(o.Transports, []string{"tcp", "rdma", s.text}[s.pick(3)])
			}
			over := Finished(&j.Status)
			p := Next(o)
			Fails(o, &p)
			if s.pick(8) == 1 && p.Action == Apply {
				Hold(o, &p, v1alpha1.ReasonInvalid, s.text)
			}
			if conforms(t, &p.Status); t.Failed() {
				return
			}
			if over && !Finished(&p.Status) {
				t.Fatalf("a job that was over is not any more: %+v", p.Status)
			}
			if p.Requeue < 0 {
				t.Fatalf("looks again after %v", p.Requeue)
			}
			j.Status = p.Status
		}
	})
}
