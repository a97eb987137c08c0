// Package trial tests an installation: it runs a small MPIJob to its end and reports
// its states. It owns the spec of that job.
package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Trial is the configuration of a test.
type Trial struct {
	Client    client.Client
	Namespace string
	Image     string // image with the program hello
	Pull      corev1.PullPolicy
	Secrets   []string // names of the Secrets of Namespace with which the images are pulled
	// Tolerations of the job's pods.
	Tolerations []corev1.Toleration
	User        int64         // user of the job's container; 0: the platform chooses
	Out         io.Writer     // writer that gets one line for each change of the job's state
	Look        time.Duration // time between two reads of the job; default 1 s
}

// ErrFailed is wrapped by the error for a failed job.
var ErrFailed = errors.New("the trial job has failed")

// Run makes the job and waits until it has ended or ctx ends. A successful job is
// deleted; any other stays for inspection.
func (t *Trial) Run(ctx context.Context) error {
	job := t.job()
	if err := t.Client.Create(ctx, job); err != nil {
		return fmt.Errorf("making the trial job: %w", err)
	}
	t.say("MPIJob %s/%s: %d ranks in 2 pods", job.Namespace, job.Name, job.Spec.Ranks)
	if err := t.wait(ctx, job); err != nil {
		return fmt.Errorf("%w; see: kubectl --namespace %s describe mpijob %s", err, job.Namespace, job.Name)
	}
	t.say("every rank has ended well, over %v", job.Status.Transports)
	return t.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground))
}

func (t *Trial) say(format string, a ...any) {
	_, _ = fmt.Fprintf(t.Out, format+"\n", a...) // the result is the exit code
}

// wait reports each change of the job's state until the job has ended.
func (t *Trial) wait(ctx context.Context, job *v1alpha1.MPIJob) error {
	pause := t.Look
	if pause == 0 {
		pause = time.Second
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for said := "no state: does the operator run?"; ; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ended in time, last seen: %s", said)
		case <-tick.C:
		}
		if err := t.Client.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return fmt.Errorf("looking at the trial job: %w", err)
		}
		if now := state(job); now != "" && now != said {
			said = now
			t.say("%s", said)
		}
		switch {
		case meta.IsStatusConditionTrue(job.Status.Conditions, v1alpha1.ConditionComplete):
			return nil
		case meta.IsStatusConditionTrue(job.Status.Conditions, v1alpha1.ConditionFailed):
			return fmt.Errorf("%w: %s", ErrFailed, failure(job))
		}
	}
}

// state returns the text of the condition that is True.
func state(job *v1alpha1.MPIJob) string {
	for _, c := range job.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			return fmt.Sprintf("%s (%s): %s", c.Type, c.Reason, c.Message)
		}
	}
	return ""
}

func failure(job *v1alpha1.MPIJob) string {
	if f := job.Status.FirstFailure; f != nil {
		return fmt.Sprintf("%s: %s", f.Reason, f.Message)
	}
	return state(job)
}

// job returns a job of two pods with two ranks each, so that messages are sent within a
// pod and between pods. Its pods comply with the level "restricted" of Pod Security.
func (t *Trial) job() *v1alpha1.MPIJob {
	no, yes := false, true
	var user *int64
	if t.User != 0 {
		user = &t.User
	}
	ttl, deadline := int32(3600), int64(600)
	arena := resource.MustParse("16Mi")
	var secrets []corev1.LocalObjectReference
	for _, name := range t.Secrets {
		secrets = append(secrets, corev1.LocalObjectReference{Name: name})
	}
	return &v1alpha1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "outrigger-trial-", Namespace: t.Namespace},
		Spec: v1alpha1.MPIJobSpec{
			Ranks: 4, RanksPerPod: 2, LaunchMode: v1alpha1.LaunchProcesses,
			Memory:    v1alpha1.MemorySpec{Arena: &arena},
			RunPolicy: v1alpha1.RunPolicy{TTLSecondsAfterFinished: &ttl, ActiveDeadlineSeconds: &deadline},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeSelector:                 map[string]string{corev1.LabelOSStable: "linux"},
				AutomountServiceAccountToken: &no,
				ImagePullSecrets:             secrets, Tolerations: t.Tolerations,
				Containers: []corev1.Container{{
					Name: "hello", Image: t.Image, ImagePullPolicy: t.Pull, Command: []string{"/usr/local/bin/hello"},
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
					},
					SecurityContext: &corev1.SecurityContext{
						AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, RunAsNonRoot: &yes, RunAsUser: user,
						Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
				}},
			}},
		},
	}
}
