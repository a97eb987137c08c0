//go:build cluster

package mpijob

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// outage is how long a service is away in TestOutages, and outageIssuer the least for the
// issuer: a sidecar once had a minute to start. make test-outages has five minutes.
var outage = flag.Duration("outage", 15*time.Second, "how long each service is away in TestOutages")

const outageIssuer = 65 * time.Second

// gate is a label of nodes, for which pods wait by their node selector.
const gate = "outrigger.test/gate"

// service is a service that a test stops for a while.
type service struct {
	name        string
	stop, start func(ctx context.Context) error
	api         bool // the API server answers meanwhile
	issues      bool // sidecars get no certificate meanwhile
}

// run runs kubectl and ignores its output.
func run(ctx context.Context, args ...string) error {
	if out, err := lab.Kubectl(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func services(t *testing.T) []service {
	t.Helper()
	replicas := kubectl(t, "get", "deployment", "-n", release, "outrigger-operator", "-o", "jsonpath={.spec.replicas}")
	scale := func(ctx context.Context, to string) error {
		return run(ctx, "scale", "-n", release, "deployment/outrigger-operator", "--replicas="+to)
	}
	agent := func(ctx context.Context, selector string) error {
		return run(ctx, "patch", "-n", release, "daemonset/outrigger-devplugin", "--type=merge", "-p", `{"spec":{"template":{"spec":{"nodeSelector":`+selector+`}}}}`)
	}
	return []service{
		{"operator", func(ctx context.Context) error {
			if err := scale(ctx, "0"); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return harness.Poll(ctx, func() error {
				pods := new(corev1.PodList)
				err := api.List(ctx, pods, client.InNamespace(release), client.MatchingLabels{"app.kubernetes.io/name": "outrigger-operator"})
				if n := len(pods.Items); err == nil && n > 0 {
					err = fmt.Errorf("%d pods of the operator are there still", n)
				}
				return err
			})
		}, func(ctx context.Context) error {
			if err := scale(ctx, replicas); err != nil {
				return err
			}
			return run(ctx, "rollout", "status", "-n", release, "deployment/outrigger-operator", "--timeout=120s")
		}, true, true},
		{"apiserver", func(context.Context) error { return lab.StopAPIServer() }, lab.StartAPIServer, false, false},
		{"agent", func(ctx context.Context) error {
			return agent(ctx, `{"outrigger.test/none":""}`)
		}, func(ctx context.Context) error {
			if err := agent(ctx, `{"outrigger.test/none":null}`); err != nil {
				return err
			}
			return run(ctx, "rollout", "status", "-n", release, "daemonset/outrigger-devplugin", "--timeout=120s")
		}, true, false},
	}
}

// TestOutages checks that an outage of a service, of any length, delays jobs that start
// meanwhile, and fails neither these nor running jobs.
func TestOutages(t *testing.T) {
	for _, s := range services(t) {
		t.Run(s.name, func(t *testing.T) {
			ns := restricted(t)
			away := *outage
			if s.issues {
				away = max(away, outageIssuer)
			}
			rounds := int((away + 30*time.Second) / (100 * time.Millisecond))
			runs := submit(t, example(ns, "runs", "ring", "-rounds", fmt.Sprint(rounds), "-pause", "100ms"))
			starts := example(ns, "starts", "ring", "-rounds", "20")
			starts.Spec.Template.Spec.NodeSelector = map[string]string{gate: s.name}
			submit(t, starts)
			becomes(t, runs, v1alpha1.ConditionRunning)
			eventually(t, func() error {
				if n := len(podsOf(t, starts)); n != 2 {
					return fmt.Errorf("%d pods of the job that starts", n)
				}
				return nil
			})
			open := func() {
				t.Helper()
				kubectl(t, "label", "nodes", "--all", "--overwrite", gate+"="+s.name)
			}
			t.Cleanup(func() { _ = run(context.WithoutCancel(t.Context()), "label", "nodes", "--all", gate+"-") })
			if !s.api {
				open() // its pods are on their way when the API server goes
			}
			if err := s.stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			back := false
			t.Cleanup(func() {
				if !back { // the test has failed already
					_ = s.start(context.WithoutCancel(t.Context()))
				}
			})
			if s.api {
				open()
			}
			if s.issues {
				eventually(t, func() error { return waiting(podsOf(t, starts)) })
			}
			time.Sleep(away) // what is shown is that nothing happens meanwhile
			if s.issues {
				if err := waiting(podsOf(t, starts)); err != nil {
					t.Errorf("after %v: %v", away, err)
				}
			}
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			back = true
			for _, j := range []*v1alpha1.MPIJob{starts, runs} {
				completes(t, j, away)
			}
		})
	}
}

// completes fails the test unless a job completes without another attempt. A container that
// ended without the API server is started again by the kubelet after a pause as long as the
// outage.
func completes(t *testing.T, j *v1alpha1.MPIJob, away time.Duration) {
	t.Helper()
	now := new(v1alpha1.MPIJob)
	for end := time.Now().Add(patience + away); ; time.Sleep(100 * time.Millisecond) {
		err := api.Get(t.Context(), client.ObjectKeyFromObject(j), now)
		if s := &now.Status; err == nil && (s.FirstFailure != nil || deref(s.Restarts) > 0 || deref(s.Drains) > 0) {
			t.Fatalf("job %s: %+v, first failure %+v", j.Name, s, s.FirstFailure)
		}
		if err == nil && meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionComplete) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("job %s does not end: %+v (%v)", j.Name, now.Status, err)
		}
	}
}

func podsOf(t *testing.T, j *v1alpha1.MPIJob) []corev1.Pod {
	t.Helper()
	pods := new(corev1.PodList)
	if err := api.List(t.Context(), pods, client.InNamespace(j.Namespace), client.MatchingLabels{names.LabelJob: j.Name}); err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

// waiting returns an error unless each pod's launcher runs and waits for a sidecar that is
// alive, is not ready, and was never restarted.
func waiting(pods []corev1.Pod) error {
	for i := range pods {
		p := &pods[i]
		app := false
		for _, c := range p.Status.ContainerStatuses {
			app = app || c.State.Running != nil
		}
		for _, c := range p.Status.InitContainerStatuses {
			if c.Name == names.ContainerSidecar && (c.State.Running == nil || c.Ready || c.RestartCount > 0) {
				return fmt.Errorf("the sidecar of pod %s: %+v", p.Name, c)
			}
		}
		if !app {
			return fmt.Errorf("the launcher of pod %s does not run: %+v", p.Name, p.Status)
		}
	}
	return nil
}
