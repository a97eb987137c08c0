//go:build cluster

package scale

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// ranksOfPod is how many ranks each pod of the large job has.
const ranksOfPod = 128

// TestLargeJob runs one job of many pods: its objects stay small, and the
// operator's calls are for the job and not for each of its pods, apart from the
// status that it writes at a pace, and from second looks, which the issuer has for
// pods that ask before the operator has heard of them. Some may: a watch that does not
// keep up with a burst is ended by the API server, and begins again within a second.
func TestLargeJob(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	program := build(t)
	config := environment(t)
	c := watch(ctx, t, config)
	k := startKubelets(ctx, t, config, 20, 2*time.Second, flags.pods)
	d := openDoor(t, config)
	o := startOperator(t, program, d)
	before := d.counts()
	finish := profile(ctx, t, config, o)

	j := job("large", nil)
	j.Spec.Ranks, j.Spec.RanksPerPod = int32(flags.pods)*ranksOfPod, ranksOfPod
	begin := time.Now()
	if err := api.Create(ctx, j); err != nil {
		t.Fatal(err)
	}
	wait(t, c, o, v1alpha1.ConditionComplete, 1)
	took := time.Since(begin)
	finish()
	made := d.counts().since(before)
	calls, _ := made.total()
	cpu, rss, peak := o.used(t)
	t.Logf("an MPIJob of %d pods and %d ranks complete after %.1f s, with %d calls of the operator, %.2f s of CPU, memory %s, at most %s",
		flags.pods, j.Spec.Ranks, took.Seconds(), calls, cpu.Seconds(), rss, peak)
	t.Logf("it looked %v times; call | number | a job\n%s", o.reconciles(t), made.table(1))
	k.judge(t, flags.pods)
	document, batch := new(corev1.ConfigMap), new(batchv1.Job)
	for name, o := range map[string]client.Object{jobdoc.DocumentName(j, 0): document, "large-0": batch} {
		if err := api.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}
	text := document.Data[names.BootstrapFile]
	t.Logf("the job document has %d bytes, the Job %d", len(text), batch.Size())
	parsed, err := bootstrap.Parse([]byte(text))
	if err != nil || len(parsed.Pods) != flags.pods || len(text) > 8<<10 {
		t.Errorf("the document of %d bytes has %d pods, %v", len(text), len(parsed.Pods), err)
	}
	looks, cost := made.secondLooks()
	if most := 20 + int(took/time.Second)*2; calls-cost > most {
		t.Errorf("%d calls in addition to %d for second looks, want at most %d: 20, and two for each second", calls-cost, cost, most)
	}
	// issuer.shareBurst, and shareRate a second.
	if most := 100 + int(took/time.Second+1)*10; looks > most {
		t.Errorf("%d second looks for callers, want at most %d: what one namespace may have of them", looks, most)
	}
}
