package controller

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestRemainsOfAllJobsAreBounded: the ended pods of many jobs take bounded memory in
// total, and those of a small job are not the ones that are forgotten.
func TestRemainsOfAllJobsAreBounded(t *testing.T) {
	var r recent
	end := func(job string, pods int, text string) {
		for i := range pods {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "hpc", Name: fmt.Sprint(job, i), UID: types.UID(fmt.Sprint(job, i)),
				Labels: map[string]string{names.LabelJob: job, names.LabelInject: "true"},
			}}
			p.Status.Phase, p.Status.Message = corev1.PodSucceeded, text
			r.rememberPod(p)
		}
	}
	end("small", 4, "")
	text := strings.Repeat("x", wordMax)
	const jobs, pods = 40, 1000 // 40 jobs with 4 MiB of text and 3 MiB of pods
	for i := range jobs {
		end(fmt.Sprint("hostile-", i), pods, text)
	}
	total := 0
	for key := range r.jobs {
		total += r.jobs[key].ended.weight()
	}
	if total != r.weight {
		t.Errorf("%d bytes are kept, and %d are counted", total, r.weight)
	}
	if total > remainsMax || len(r.jobs) >= jobs { // jobs whose pods are forgotten have no record
		t.Errorf("%d bytes of %d jobs are kept, at most %d may be", total, len(r.jobs), remainsMax)
	}
	small := new(v1alpha1.MPIJob)
	small.Namespace, small.Name, small.Spec.PodManagement = "hpc", "small", v1alpha1.PodsExternal
	if kept := r.remembered(small, nil); len(kept) != 4 {
		t.Errorf("of a small job's 4 pods %d are remembered", len(kept))
	}
	for key := range r.jobs {
		r.forget(key)
	}
	if r.weight != 0 {
		t.Errorf("%d bytes of no job are counted", r.weight)
	}
}

// TestRemainsOfOthersJobs: no pods are remembered of a job that another controller
// manages.
func TestRemainsOfOthersJobs(t *testing.T) {
	now := time.Unix(1000, 0)
	j := runningJob(now, 1000)[0].(*v1alpha1.MPIJob)
	j.Spec.ManagedBy = "example.com/other"
	r, look, _ := standing(t, nil, &now, j)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "p", Labels: map[string]string{names.LabelJob: "cg", names.LabelInject: "true"}}}
	p.Status.Phase = corev1.PodSucceeded
	r.recent.rememberPod(p)
	if look(); len(r.recent.jobs) != 0 || r.recent.weight != 0 {
		t.Errorf("%d bytes are kept", r.recent.weight)
	}
}

// TestCutTextsAreNotKept: the part that is cut from a long text does not stay in
// memory.
func TestCutTextsAreNotKept(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const pods, long = 64, 1 << 20
	kept := make([]*corev1.Pod, pods)
	before := heap()
	for i := range kept {
		kept[i] = &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Message: strings.Repeat("x", long)}}
		essence(kept[i], wordsMax)
	}
	if grown := heap() - before; grown > pods*long/2 {
		t.Errorf("%d bytes are kept of %d texts of at most %d", grown, pods, wordMax)
	}
	runtime.KeepAlive(kept)
}
