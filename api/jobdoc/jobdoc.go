// Package jobdoc makes the job document of an MPIJob: the ranks of each pod, the
// address of its sidecar, and the tuning. The operator passes it to the sidecars of a
// cluster. `outrigger run -f` changes only addresses and files, and passes it to the
// sidecars of one machine.
package jobdoc

import (
	"crypto/sha256"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Attempt is one start of all ranks of a job.
type Attempt struct {
	Job     *v1alpha1.MPIJob           // the job, with the schema's defaults set
	Profile v1alpha1.FabricProfileSpec // spec of the job's profile; empty: no profile
	Number  int32                      // number of the attempt; 0: the first start of the job
	Service string                     // Service by which the pods find each other; empty: ServiceName
	// Issued means that the pods have no names by which they find each other: the
	// issuer returns their addresses.
	Issued bool
}

// ServiceName returns the name of the headless Service that gives names to the pods of a job.
// It is not the job's own: users have Services of that name, such as a StatefulSet's.
func ServiceName(job string) string { return job + "-ranks" }

func (a *Attempt) service() string {
	if a.Service != "" {
		return a.Service
	}
	return ServiceName(a.Job.Name)
}

// Pods returns how many pods a job has.
func Pods(s *v1alpha1.MPIJobSpec) int32 { return (s.Ranks + s.RanksPerPod - 1) / s.RanksPerPod }

// Ranks returns the first rank of a pod and the number of its ranks.
func Ranks(s *v1alpha1.MPIJobSpec, pod int32) (first, count int32) {
	first = pod * s.RanksPerPod
	return first, min(s.RanksPerPod, s.Ranks-first)
}

// DocumentName returns the name of the ConfigMap with an attempt's job document.
// Another MPIJob never has the same name, even one that is created again under the name
// of an earlier one: the kubelet reads an immutable ConfigMap once, and keeps it as
// long as a pod of its node refers to the name.
func DocumentName(job *v1alpha1.MPIJob, attempt int32) string {
	of := sha256.Sum256([]byte(job.UID))
	return fmt.Sprintf("%s-%x", Name(job.Name, attempt), of[:4])
}

// Name returns the name of an attempt's Job.
func Name(job string, attempt int32) string { return fmt.Sprint(job, "-", attempt) }

// PodName returns the host name of an attempt's pod.
func (a *Attempt) PodName(pod int32) string {
	return fmt.Sprint(Name(a.Job.Name, a.Number), "-", pod)
}

// address returns the address of a pod's sidecar: by the name that the headless Service
// gives to the pods of an Indexed Job, or by a name that the issuer resolves.
func (a *Attempt) address(pod string) string {
	if a.Issued {
		return fmt.Sprintf("%s:%d", pod, names.PortPeers)
	}
	return fmt.Sprintf("%s.%s.%s.svc:%d", pod, a.service(), a.Job.Namespace, names.PortPeers)
}

// Pattern returns the pattern that describes the attempt's pods in a document, instead
// of a list.
func (a *Attempt) Pattern() *bootstrap.Pattern {
	return &bootstrap.Pattern{
		Name:        Name(a.Job.Name, a.Number) + "-%d",
		Address:     a.address(Name(a.Job.Name, a.Number) + "-%d"),
		RanksPerPod: int(a.Job.Spec.RanksPerPod),
	}
}

// Document returns the job document of the attempt in a cluster, without the
// credentials, which the operator adds. id must not be guessable.
func (a *Attempt) Document(id string) *bootstrap.Document {
	s := &a.Job.Spec
	m := MemoryOf(s, &a.Profile, Pods(s))
	d := &bootstrap.Document{
		Version: bootstrap.Version,
		Job:     bootstrap.Job{Name: a.Job.Namespace + "/" + a.Job.Name, ID: id},
		Ranks:   int(s.Ranks),
		Memory:  bootstrap.Memory{ArenaBytes: m.Arena, SlabBytes: m.Slab},
		Tuning:  a.tuning(),
	}
	for i := range Pods(s) {
		first, count := Ranks(s, i)
		d.Pods = append(d.Pods, bootstrap.Pod{
			Name: a.PodName(i), Address: a.address(a.PodName(i)), FirstRank: int(first), Ranks: int(count),
		})
	}
	return d
}
