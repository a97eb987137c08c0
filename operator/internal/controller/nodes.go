package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodes are those on which a verdict waits for the end of a pod, as they were seen last. One
// is read when that is, past the caches: to watch all nodes of a cluster would cost more than
// all jobs of it.
type nodes struct {
	mu   sync.Mutex // guards seen
	seen map[string]nodeSeen
}

type nodeSeen struct {
	at   time.Time
	lost bool // it is not Ready, or is gone
	gone bool
}

// Bounds of what is asked about nodes.
const (
	nodeAgain = 5 * time.Second // before the same node is read again
	nodesMax  = 1024            // that are remembered
)

// see is the state of a node. A node that may not be read, where the operator has rights in
// some namespaces only, is taken for one that is Ready.
func (n *nodes) see(ctx context.Context, live client.Reader, name string, now time.Time) nodeSeen {
	n.mu.Lock()
	s, known := n.seen[name]
	n.mu.Unlock()
	if known && now.Sub(s.at).Abs() < nodeAgain {
		return s
	}
	node := new(corev1.Node)
	err := live.Get(ctx, client.ObjectKey{Name: name}, node)
	if err != nil && !apierrors.IsNotFound(err) {
		unread(ctx, "nodes", "a verdict waits for pods on lost nodes as for others", name, err)
	}
	s = nodeSeen{at: now, lost: apierrors.IsNotFound(err) || err == nil && !isReady(node), gone: apierrors.IsNotFound(err)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.seen) >= nodesMax {
		clear(n.seen) // each of them costs one more look
	}
	if n.seen == nil {
		n.seen = map[string]nodeSeen{}
	}
	n.seen[name] = s
	return s
}

// unclaimed says of a pod that has a node, and of which no kubelet has told anything, why that
// is so; empty: it is not known.
func (n *nodes) unclaimed(ctx context.Context, live client.Reader, p *corev1.Pod, now time.Time) string {
	if p.Spec.NodeName == "" || p.Status.StartTime != nil {
		return ""
	}
	switch s := n.see(ctx, live, p.Spec.NodeName, now); {
	case s.gone:
		return fmt.Sprintf("there is no node %s: the nodeName of the template, or who bound the pod to it, names one that there is", p.Spec.NodeName)
	case s.lost:
		return fmt.Sprintf("its node %s is not Ready, and has not begun it", p.Spec.NodeName)
	}
	return ""
}

func isReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false // it has not said so
}
