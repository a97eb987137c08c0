//go:build cluster

package scale

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Moments in a job's life.
const (
	momentSubmitted = "submitted"
	momentMade      = "objects made" // its Job is there, which is made last
)

// clock records, for each job, when a watcher first saw each moment.
type clock struct {
	mu   sync.Mutex
	seen map[string]map[string]time.Time // moment, job
}

// watch records the moments of all jobs until ctx ends.
func watch(ctx context.Context, t *testing.T, config *rest.Config) *clock {
	t.Helper()
	c := &clock{seen: map[string]map[string]time.Time{}}
	objects, err := cache.New(rest.CopyConfig(config), cache.Options{Scheme: api.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{&v1alpha1.MPIJob{}, &batchv1.Job{}} {
		i, err := objects.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: c.see, UpdateFunc: func(_, o any) { c.see(o) }}); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(ctx)
	go func() { done <- objects.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	objects.WaitForCacheSync(ctx)
	return c
}

func (c *clock) see(o any) {
	switch o := o.(type) {
	case *batchv1.Job:
		c.note(momentMade, o.Labels[names.LabelJob])
	case *v1alpha1.MPIJob:
		for _, k := range o.Status.Conditions {
			if k.Status == metav1.ConditionTrue {
				c.note(k.Type, o.Name)
			}
		}
	}
}

func (c *clock) note(moment, job string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.seen[moment]
	if of == nil {
		of = map[string]time.Time{}
		c.seen[moment] = of
	}
	if of[job].IsZero() {
		of[job] = time.Now()
	}
}

// number of jobs of which a moment was seen.
func (c *clock) number(moment string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen[moment])
}

// table prints the times since each job was submitted, and of how many jobs a
// moment was seen: under load a job may be over when the operator first looks.
func (c *clock) table() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := ""
	for _, moment := range []string{momentMade, v1alpha1.ConditionRunning, v1alpha1.ConditionComplete} {
		var took []time.Duration
		for job, at := range c.seen[moment] {
			took = append(took, at.Sub(c.seen[momentSubmitted][job]))
		}
		slices.Sort(took)
		if n := len(took); n > 0 {
			text += fmt.Sprintf("| %s | %d | %.1f s | %.1f s | %.1f s |\n", moment, n, took[n/2].Seconds(), took[min(n-1, n*99/100)].Seconds(), took[n-1].Seconds())
		}
	}
	return text
}
