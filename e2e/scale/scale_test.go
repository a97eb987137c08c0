//go:build cluster

package scale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// podsOfJob is how many pods each job has, of two ranks each.
const podsOfJob = 4

// callsOfJob bounds the operator's calls for a job that runs and ends well,
// watches apart: see TestManyJobs.
const callsOfJob = 14

// flags of the test.
var flags struct {
	jobs     int
	pods     int
	idle     time.Duration
	profiles string
	operator words
}

// words is a flag that may be repeated.
type words []string

func (w *words) String() string     { return strings.Join(*w, " ") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

func init() {
	flag.IntVar(&flags.jobs, "scale.jobs", 100, "jobs that are submitted at once")
	flag.IntVar(&flags.pods, "scale.pods", 128, "pods of the one large job")
	flag.DurationVar(&flags.idle, "scale.idle", 10*time.Second, "how long the operator must be silent afterwards")
	flag.StringVar(&flags.profiles, "scale.profiles", "", "a directory for the operator's CPU and heap profiles; empty: none")
	flag.Var(&flags.operator, "scale.operator", "one more argument of the operator; may be given several times")
}

// api is the tests' own client.
var api client.Client

// TestManyJobs submits all jobs at once, waits until all are complete, and bounds the
// operator's calls. Then it checks that the operator does nothing while some more jobs run
// without events.
func TestManyJobs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	program := build(t)
	config := environment(t)
	c := watch(ctx, t, config)
	k := startKubelets(ctx, t, config, 20, 2*time.Second, podsOfJob)
	d := openDoor(t, config)
	o := startOperator(t, program, d)
	before := d.counts()
	finish := profile(ctx, t, config, o)

	begin := time.Now()
	submit(ctx, t, c, flags.jobs)
	t.Logf("%d jobs submitted in %.1f s", flags.jobs, time.Since(begin).Seconds())
	wait(t, c, o, v1alpha1.ConditionComplete, flags.jobs)
	took := time.Since(begin)
	finish()
	silent(t, d, o, 3*time.Second, true)
	calls := d.counts().since(before)
	cpu, rss, peak := o.used(t)
	t.Logf("%d MPIJobs of %d pods complete after %.1f s; the operator used %.2f s of CPU (%.1f ms a job), memory %s, at most %s, and looked %v times",
		flags.jobs, podsOfJob, took.Seconds(), cpu.Seconds(), cpu.Seconds()*1000/float64(flags.jobs), rss, peak, o.reconciles(t))
	t.Logf("from submission to | jobs | p50 | p99 | longest\n%s", c.table())
	t.Logf("call | number | a job\n%s", calls.table(flags.jobs))
	if all, _ := calls.total(); all > callsOfJob*flags.jobs {
		t.Errorf("%d calls for %d jobs, want at most %d a job", all, flags.jobs, callsOfJob)
	}
	judge(t)
	k.judge(t, flags.jobs*podsOfJob)

	stay := submitOne(t, ctx, "stay", map[string]string{labelStay: "true"})
	if err := harness.Poll(ctx, func() error {
		return is(ctx, client.ObjectKeyFromObject(stay), v1alpha1.ConditionRunning)
	}); err != nil {
		t.Fatal(err)
	}
	silent(t, d, o, 3*time.Second, true)
	silent(t, d, o, flags.idle, false)
	t.Logf("with %d jobs that are over and one that runs, the operator was silent for %v", flags.jobs, flags.idle)
}

// environment returns an API server with controllers and the custom resources.
func environment(t *testing.T) *rest.Config {
	t.Helper()
	env, err := harness.Env(t.Context(), harness.WithControllers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(env.Config)
	config.QPS = -1
	if api, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../charts/outrigger/generated/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no resource definitions: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		u := new(unstructured.Unstructured)
		if err := yaml.Unmarshal(text, &u.Object); err != nil {
			t.Fatal(err)
		}
		if err := api.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if err := harness.Poll(t.Context(), func() error {
		account := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}
		return errors.Join(
			api.List(t.Context(), new(v1alpha1.MPIJobList)), api.List(t.Context(), new(v1alpha1.FabricProfileList)),
			api.Get(t.Context(), account, new(corev1.ServiceAccount)), // without it no pod is admitted
		)
	}); err != nil {
		t.Fatal(err)
	}
	return config
}

// submit creates the jobs, as fast as this machine can.
func submit(ctx context.Context, t *testing.T, c *clock, jobs int) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(16)
	for i := range jobs {
		all.Go(func() error {
			name := fmt.Sprintf("job%04d", i)
			c.note(momentSubmitted, name)
			return api.Create(ctx, job(name, nil))
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

func submitOne(t *testing.T, ctx context.Context, name string, labels map[string]string) *v1alpha1.MPIJob {
	t.Helper()
	j := job(name, labels)
	if err := api.Create(ctx, j); err != nil {
		t.Fatal(err)
	}
	return j
}

func job(name string, labels map[string]string) *v1alpha1.MPIJob {
	j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	j.Spec.Ranks, j.Spec.RanksPerPod = 2*podsOfJob, 2
	j.Spec.Template.Labels = labels
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "solver", Image: "example/solver", Command: []string{"/solver"}}}
	return j
}

// wait waits until a condition of all jobs was True. It gives up when nothing
// has happened for minutes.
func wait(t *testing.T, c *clock, o *operator, condition string, jobs int) {
	t.Helper()
	last, since := -1, time.Now()
	for {
		n := c.number(condition)
		if n >= jobs {
			return
		}
		if n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) > 5*time.Minute+time.Duration(flags.pods)*time.Second/4 { // one job may have many pods
			t.Fatalf("%d of %d jobs are %s, and none has become so for minutes", n, jobs, condition)
		}
		o.alive(t)
		time.Sleep(100 * time.Millisecond)
	}
}

// judge checks every job's last status.
func judge(t *testing.T) {
	t.Helper()
	list := new(v1alpha1.MPIJobList)
	if err := api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != flags.jobs {
		t.Errorf("%d jobs, want %d", len(list.Items), flags.jobs)
	}
	wrong := 0
	for i := range list.Items {
		s := &list.Items[i].Status
		good := s.Ranks != nil && *s.Ranks.Succeeded == 2*podsOfJob && s.FirstFailure == nil && (s.Restarts == nil || *s.Restarts == 0) &&
			strings.Join(s.Transports, " ") == "tcp" && s.StartTime != nil && s.CompletionTime != nil
		if wrong += 1; good {
			wrong--
		} else if wrong < 4 {
			t.Errorf("job %s: status %+v, ranks %+v", list.Items[i].Name, s, s.Ranks)
		}
	}
	if wrong > 0 {
		t.Errorf("the status of %d of %d jobs is wrong", wrong, flags.jobs)
	}
	secrets := new(corev1.SecretList)
	if err := api.List(t.Context(), secrets, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	if n := len(secrets.Items); n != 0 {
		t.Errorf("%d Secrets of jobs that are over", n)
	}
}

func is(ctx context.Context, key client.ObjectKey, condition string) error {
	j := new(v1alpha1.MPIJob)
	if err := api.Get(ctx, key, j); err != nil {
		return err
	}
	for _, c := range j.Status.Conditions {
		if c.Type == condition && c.Status == metav1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("job %s is not %s: %+v", j.Name, condition, j.Status.Conditions)
}
