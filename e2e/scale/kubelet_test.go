//go:build cluster

package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// address is the address of every pod.
const address = "127.0.0.1"

// labelStay marks pods whose ranks do not end.
const labelStay = "scale/stay"

// kubelets stands in for the kubelets of all nodes. Pods go through the states
// that the operator sees of real ones: the sidecar starts and gets its
// certificate; when those of all pods of the job have, the ranks start; after a
// while they end well, and both leave their last words. Nothing runs, and every
// pod has the address from which the stand-ins ask.
type kubelets struct {
	t      *testing.T
	client kubernetes.Interface
	work   time.Duration // of a job
	pods   int           // of each job
	slots  chan struct{} // bounds calls at a time

	issuers          issuers
	certified, later atomic.Int64 // certificates, and requests that came too early
	tries            atomic.Int64 // calls and requests that failed for another cause

	mu      sync.Mutex
	waiting map[string][]*corev1.Pod // by Job: pods whose sidecar has started
	begun   map[types.UID]bool
}

// startKubelets makes nodes, and takes care of the pods that are bound to them
// until ctx ends.
func startKubelets(ctx context.Context, t *testing.T, config *rest.Config, nodes int, work time.Duration, each int) *kubelets {
	t.Helper()
	own := rest.CopyConfig(config)
	own.QPS = -1
	own.ContentType = "application/vnd.kubernetes.protobuf"
	client := kubernetes.NewForConfigOrDie(own)
	for i := range nodes {
		addNode(ctx, t, client, fmt.Sprint("node", i+1))
	}
	k := &kubelets{t: t, client: client, work: work, pods: each, slots: make(chan struct{}, 32), waiting: map[string][]*corev1.Pod{}, begun: map[types.UID]bool{}}
	k.issuers.known = map[string]*bootstrap.Issuer{}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	see := func(o any) {
		if p, ok := o.(*corev1.Pod); ok {
			k.see(ctx, p)
		}
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	t.Cleanup(factory.Shutdown)
	return k
}

func addNode(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	if _, err := client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A new node is tainted as not ready, and the controller that would change
	// that does not run: no controller looks after the health of these nodes.
	for subresource, patch := range map[string]string{
		"": `{"spec":{"taints":null}}`,
		"status": `{"status":{"capacity":{"cpu":"100k","memory":"100Ti","pods":"100k"},"allocatable":{"cpu":"100k","memory":"100Ti","pods":"100k"},` +
			`"conditions":[{"type":"Ready","status":"True"}]}}`,
	} {
		var under []string
		if subresource != "" {
			under = []string{subresource}
		}
		if _, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, under...); err != nil {
			t.Fatal(err)
		}
	}
}

// see starts the simulation of a pod that was bound to a node.
func (k *kubelets) see(ctx context.Context, p *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case p.DeletionTimestamp != nil && p.Spec.NodeName != "":
		go k.end(ctx, p)
	case p.Spec.NodeName != "" && p.Status.Phase == corev1.PodPending && !k.begun[p.UID]:
		k.begun[p.UID] = true
		go k.begin(ctx, p)
	}
}

// end removes a pod that is being deleted, as a kubelet does when its containers have ended.
func (k *kubelets) end(ctx context.Context, p *corev1.Pod) {
	k.call(ctx, func() error {
		now := int64(0)
		return k.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	})
}

// begin starts a pod's sidecar, and the ranks of the job when it was the last.
func (k *kubelets) begin(ctx context.Context, p *corev1.Pod) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	yes := true
	init := []corev1.ContainerStatus{
		{Name: names.ContainerInstall, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.Now()}}},
		{Name: names.ContainerSidecar, State: running, Ready: true, Started: &yes},
	}
	app := []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
	k.report(ctx, p, corev1.PodPending, init, app)
	k.certify(ctx, p)
	for _, p := range k.together(p) {
		app := []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, State: running, Ready: true, Started: &yes}}
		go func() {
			k.report(ctx, p, corev1.PodRunning, init, app)
			if p.Labels[labelStay] == "" {
				k.finish(ctx, p)
			}
		}()
	}
}

// together collects the pods of a Job, and returns all of them for the last one.
func (k *kubelets) together(p *corev1.Pod) []*corev1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	job := p.Namespace + "/" + p.Labels[batchv1.JobNameLabel]
	k.waiting[job] = append(k.waiting[job], p)
	if len(k.waiting[job]) < k.pods {
		return nil
	}
	all := k.waiting[job]
	delete(k.waiting, job)
	return all
}

// finish ends a pod's ranks and its sidecar, with their last words.
func (k *kubelets) finish(ctx context.Context, p *corev1.Pod) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(k.work):
	}
	number, _ := strconv.Atoi(p.Labels[batchv1.JobCompletionIndexAnnotation]) // a Job's controller writes it
	ended := func(m *podlife.Message) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.Now(), Message: string(m.Encode())}}
	}
	sidecar := &podlife.Message{Kind: podlife.KindSidecar, Pod: number, Traffic: []podlife.Traffic{{Transport: "tcp", Peers: k.pods - 1, Messages: 1000, Bytes: 1 << 20}}}
	k.report(ctx, p, corev1.PodSucceeded,
		[]corev1.ContainerStatus{{Name: names.ContainerSidecar, State: ended(sidecar)}},
		[]corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, State: ended(&podlife.Message{Kind: podlife.KindRanks, Pod: number})}})
}

// report patches a pod's status, as kubelets do.
func (k *kubelets) report(ctx context.Context, p *corev1.Pod, phase corev1.PodPhase, init, app []corev1.ContainerStatus) {
	status := map[string]any{"phase": phase, "initContainerStatuses": init, "containerStatuses": app}
	if phase == corev1.PodPending {
		status["startTime"], status["podIP"], status["podIPs"] = metav1.Now(), address, []corev1.PodIP{{IP: address}}
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
	if err != nil {
		k.t.Error(err)
		return
	}
	k.call(ctx, func() error {
		_, err := k.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
		return err
	})
}

// call makes a call within the rate, and repeats it as kubelets do. A pod that no longer
// exists is no error.
func (k *kubelets) call(ctx context.Context, do func() error) {
	k.slots <- struct{}{}
	defer func() { <-k.slots }()
	err := harness.Poll(ctx, func() error {
		err := do()
		if apierrors.IsNotFound(err) || err != nil && strings.Contains(err.Error(), "uid mismatch") {
			return nil
		}
		return k.again(ctx, err)
	})
	if err != nil && ctx.Err() == nil {
		k.t.Errorf("stand-in kubelet: %v", err)
	}
}

// again counts repeated calls, and logs the first error.
func (k *kubelets) again(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && k.tries.Add(1) == 1 {
		k.t.Logf("a stand-in tries again: %v", err)
	}
	return err
}
