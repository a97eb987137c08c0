//go:build cluster

package apitest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestLongWords: a long text of a rank is still reported as an Event. The text of an Event may
// have fewer characters than a message in the status.
func TestLongWords(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, nil)
	pods := standInPods(t, get(t, ns, "cg-0", &batchv1.Job{}))
	becomes(t, j, v1alpha1.ConditionRunning)
	m := podlife.Message{Kind: podlife.KindRanks, Pod: 1, Failures: []podlife.Failure{{Rank: 2, Code: 3, Reason: podlife.RankExited, Text: strings.Repeat("é", 510), Time: time.Now()}}}
	exits(t, pods[1], 3, string(m.Encode()))
	if f := becomes(t, j, v1alpha1.ConditionFailed).Status.FirstFailure; len(f.Message) < 1000 {
		t.Fatalf("the message has %d bytes: %s", len(f.Message), f.Message)
	}
	eventually(t, func() error {
		events := new(eventsv1.EventList)
		if err := api.List(t.Context(), events, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == v1alpha1.ConditionFailed && strings.Contains(e.Note, "rank 2: ") {
				return nil
			}
		}
		return fmt.Errorf("no Event of the failure among %d", len(events.Items))
	})
}

// TestInjectOfOurOwn: if a template has the label with which pods ask the webhook for a
// sidecar, the operator removes the label, because its pods already have a sidecar.
func TestInjectOfOurOwn(t *testing.T) {
	ns := namespace(t)
	submit(t, ns, func(j *v1alpha1.MPIJob) {
		j.Spec.Template.Labels = map[string]string{names.LabelInject: "true", "app": "solver"}
	})
	b := get(t, ns, "cg-0", &batchv1.Job{})
	if l := b.Spec.Template.Labels; l[names.LabelInject] != "" || l["app"] != "solver" {
		t.Errorf("the template's labels are %v", l)
	}
}
