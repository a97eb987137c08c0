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

// nodes caches the state of the nodes on which a verdict waits for the end of a pod. A
// node is read from the API server when it is needed: a watch of all nodes of a cluster
// would cost more than all of its jobs.
type nodes struct {
	mu   sync.Mutex // guards the field seen
	seen map[string]nodeSeen
}

type nodeSeen struct {
	at   time.Time
	lost bool // the node is not Ready, or was deleted
	gone bool
}

// Bounds of reading nodes.
const (
	nodeAgain = 5 * time.Second // minimum time between two reads of one node
	nodesMax  = 1024            // maximum number of nodes whose state is remembered
)

// see returns the state of a node. If the node may not be read, because the operator
// has rights in some namespaces only, see treats it as Ready.
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
		logUnreadable(ctx, "nodes", "a verdict waits for pods on lost nodes as for others", name, err)
	}
	s = nodeSeen{at: now, lost: apierrors.IsNotFound(err) || err == nil && !isReady(node), gone: apierrors.IsNotFound(err)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.seen) >= nodesMax {
		clear(n.seen) // each node is then read once more
	}
	if n.seen == nil {
		n.seen = map[string]nodeSeen{}
	}
	n.seen[name] = s
	return s
}

// unclaimed explains why no kubelet has reported the status of a pod that has a node;
// empty if the reason is not known.
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
	return false // the node has reported no condition
}
