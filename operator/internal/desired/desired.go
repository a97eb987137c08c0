// Package desired computes the objects that an MPIJob needs, one file per object: the
// Job, the job document, the Service, the network policy, the disruption budget and the
// pod group. It also owns the annotations of a Job that record what the operator last
// requested and why it ended the Job. It is pure: random values are in the Identity.
package desired

import (
	"fmt"
	"maps"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
)

// Options are the operator's options that affect the objects.
type Options struct {
	Image    string // image of the sidecar
	Pull     string // image pull policy; empty: Kubernetes' default
	LogLevel string // log level of sidecars; empty: info
	// LocalMetrics makes sidecars serve metrics only within their pods.
	LocalMetrics bool
	// Sidecar is the default of the sidecars' resources.
	Sidecar v1alpha1.SidecarResources
	// Policies configures the network policy of each job; nil: none is made.
	Policies *Policies
	// User is the user id of sidecars in namespaces without a range of user ids. nil:
	// inject.UserDefault; 0: the platform chooses.
	User *int64
	// AllowedVariables and AllowedMounts are what other admission webhooks may add to
	// sidecars.
	AllowedVariables, AllowedMounts []string
}

// Attempt is one start of all ranks of a job.
type Attempt struct {
	Job     *v1alpha1.MPIJob
	Profile v1alpha1.FabricProfileSpec // spec of the job's profile; empty: no profile
	Number  int32                      // number of the attempt; 0: the first start of the job
	Options Options
	// Peers is the name of the Service by which the pods find each other, or ByIssuer,
	// as in the job document (PeersOf); empty: there is no document yet.
	Peers string
	// Bounds are the bounds of the LimitRanges in the job's namespace.
	Bounds inject.Bounds
	// UIDs are the user ids that the namespace allows for its pods.
	UIDs inject.UIDs
	// Minor is the minor version of the cluster's Kubernetes, 1.Minor; 0: not known.
	Minor int
}

// ByIssuer, in place of the name of a Service, means that pods find each other by the
// addresses that the issuer returns. A Service cannot have this name.
const ByIssuer = "@issuer"

// peers returns the name of the attempt's Service, or ByIssuer for pods of other
// controllers: their controller and the application know these by their own names.
func (a *Attempt) peers() string {
	switch {
	case a.Peers != "":
		return a.Peers
	case a.Job.Spec.PodManagement == v1alpha1.PodsExternal:
		return ByIssuer
	}
	return jobdoc.ServiceName(a.Job.Name)
}

// Named reports whether the attempt's pods find each other by the names that a Service
// gives them.
func (a *Attempt) Named() bool { return a.peers() != ByIssuer }

// Name returns the name of the attempt's Job.
func (a *Attempt) Name() string { return AttemptName(a.Job.Name, a.Number) }

// DocumentName returns the name of the attempt's ConfigMap.
func (a *Attempt) DocumentName() string { return jobdoc.DocumentName(a.Job, a.Number) }

// AttemptName returns the name of an attempt's Job.
func AttemptName(job string, number int32) string { return jobdoc.Name(job, number) }

// Pods returns the number of pods of the job.
func (a *Attempt) Pods() int32 { return Pods(&a.Job.Spec) }

// Pods returns the number of pods of a job.
func Pods(s *v1alpha1.MPIJobSpec) int32 { return jobdoc.Pods(s) }

// Ranks returns the first rank of a pod and the number of its ranks.
func Ranks(s *v1alpha1.MPIJobSpec, pod int32) (first, count int32) {
	return jobdoc.Ranks(s, pod)
}

// meta returns an object's metadata. The MPIJob owns the object, which is therefore
// deleted with it.
func (a *Attempt) meta(name string) metav1.ObjectMeta {
	yes := true
	return metav1.ObjectMeta{
		Name: name, Namespace: a.Job.Namespace,
		Labels: map[string]string{
			names.LabelJob: a.Job.Name, "app.kubernetes.io/managed-by": "outrigger", "app.kubernetes.io/part-of": a.Job.Name,
		},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind.Kind, Name: a.Job.Name, UID: a.Job.UID,
			Controller: &yes, BlockOwnerDeletion: &yes,
		}},
	}
}

// selected returns the labels of the attempt's pods.
func (a *Attempt) selected() map[string]string {
	return map[string]string{names.LabelJob: a.Job.Name, names.LabelAttempt: strconv.Itoa(int(a.Number))}
}

func (a *Attempt) attemptMeta() metav1.ObjectMeta {
	m := a.meta(a.Name())
	m.Labels[names.LabelAttempt] = strconv.Itoa(int(a.Number))
	return m
}

// settings returns the settings for the attempt's pods.
func (a *Attempt) settings() *inject.Settings {
	s := &a.Job.Spec
	sizes := jobdoc.MemoryOf(s, &a.Profile, a.Pods())
	sizes.Registers = len(s.Devices) > 0 && s.Transport.Type != v1alpha1.TransportTCP && s.Transport.Type != v1alpha1.TransportEther
	sizes.Ether = s.Transport.Type == v1alpha1.TransportEther
	sizes.Raw = sizes.Ether && len(s.Devices) > 0 // the devices may be of a pool of the kind ether
	_, wished := s.Sidecar.Resources.Requests[corev1.ResourceCPU]
	return &inject.Settings{
		Wished: wished, Bounds: a.Bounds, User: a.Options.User, UIDs: a.UIDs,
		Namespace: a.Job.Namespace, Image: a.Options.Image, PullPolicy: pull(a.Options.Pull), ConfigMap: a.DocumentName(),
		Ranks: s.Ranks, PerPod: s.RanksPerPod, Launch: s.LaunchMode, MPI: s.MPI, Stdin: s.StdinFile, Devices: s.Devices,
		Memory: sizes, Wait: jobdoc.Wait(&a.Profile), SHM: s.Memory.SHM, Allocs: jobdoc.Allocations(&s.Memory), Progress: jobdoc.Progress(s.MPIProgress), LogLevel: a.Options.LogLevel, LocalMetrics: a.Options.LocalMetrics,
		AllowedVariables: a.Options.AllowedVariables, AllowedMounts: a.Options.AllowedMounts,
		Resources: v1alpha1.SidecarResources{
			Requests: over(a.Options.Sidecar.Requests, s.Sidecar.Resources.Requests),
			Limits:   over(a.Options.Sidecar.Limits, s.Sidecar.Resources.Limits),
		},
	}
}

// over returns the resources in all, replaced by those in job where job has them.
func over(all, job corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, all)
	maps.Copy(out, job)
	return out
}

// Join makes a pod of another controller the attempt's pod with the given number, and
// adds its sidecar. The pod keeps its names, unless the job document, made by an
// operator of an earlier release, has another name for it.
func (a *Attempt) Join(p *corev1.Pod, number int32) error {
	at, err := inject.Application(p.Spec.Containers, p.Annotations[names.AnnotationContainer], a.templated())
	if err != nil {
		return err
	}
	app := &p.Spec.Containers[at]
	if p.Spec.RestartPolicy != corev1.RestartPolicyNever && a.Minor > 0 && a.Minor < minorRestartPolicy {
		return fmt.Errorf("%w: its restartPolicy is %q, want Never: a rank that is started again cannot join its job; this cluster has Kubernetes 1.%d, and from 1.%d on a container may say restartPolicy: Never in pods of StatefulSets, LeaderWorkerSets and Deployments, which have Always alone; make the pods by a Job or a JobSet, or have the cluster upgraded", inject.ErrPod, p.Spec.RestartPolicy, a.Minor, minorRestartPolicy)
	}
	if p.Spec.RestartPolicy != corev1.RestartPolicyNever && !staysDown(app) {
		return fmt.Errorf("%w: its restartPolicy is %q, want Never: a rank that is started again cannot join its job; where a controller makes pods with Always alone, as StatefulSets and LeaderWorkerSets do, give the container restartPolicy: Never (Kubernetes 1.35 and newer)", inject.ErrPod, p.Spec.RestartPolicy)
	}
	if number < 0 || number >= a.Pods() {
		return fmt.Errorf("%w: it is number %d of a job of %d pods", inject.ErrPod, number, a.Pods())
	}
	s := a.settings()
	s.Number, s.Container = &number, app.Name
	if err := inject.Pod(&p.Spec, s); err != nil {
		return err
	}
	if a.Named() {
		p.Spec.Hostname, p.Spec.Subdomain = a.doc().PodName(number), a.peers()
	}
	p.Labels = merged(p.Labels, map[string]string{
		names.LabelAttempt: strconv.Itoa(int(a.Number)), batchv1.JobCompletionIndexAnnotation: strconv.Itoa(int(number)),
		names.LabelJobUID: string(a.Job.UID),
	})
	p.Annotations = merged(p.Annotations, map[string]string{names.AnnotationContainer: app.Name})
	return nil
}

// minorRestartPolicy is the minor version of Kubernetes since which a container can
// have a restartPolicy of its own (KEP-5307, on by default).
const minorRestartPolicy = 35

// templated returns the name of the application's container in the MPIJob's template.
func (a *Attempt) templated() string {
	for i := range a.Job.Spec.Template.Spec.Containers {
		return a.Job.Spec.Template.Spec.Containers[i].Name
	}
	return ""
}

// staysDown reports whether the container's own restart policy, which takes precedence
// over the pod's, prevents its restart.
func staysDown(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyNever && len(c.RestartPolicyRules) == 0
}
