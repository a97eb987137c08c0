package manifest

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// podsMax bounds the pods of a job, as the schema does.
const podsMax = 4096

// rule is one x-kubernetes-validations rule of the schema: its message, word for word, and
// whether it is broken. Rules about changes do not apply here.
type rule struct {
	where   string
	broken  bool
	message string
}

func complaints(rules []rule) []error {
	var wrong []error
	for _, r := range rules {
		if r.broken {
			wrong = append(wrong, &fault{path: r.where, text: r.where + ": " + r.message})
		}
	}
	return wrong
}

func jobRules(j *v1alpha1.MPIJob) []error {
	s := &j.Spec
	t := &s.Template.Spec
	// The API server's text for a fault that the schema of pods itself forbids.
	if len(t.Containers) != 1 {
		return complaints([]rule{{"spec.template.spec.containers", true, "template must have one container, the application: others would hold up the end of the job"}})
	}
	c := &t.Containers[0]
	wrong := complaints([]rule{
		{"metadata.name", len(j.Name) > 40 || strings.Contains(j.Name, ".") || j.Name != "" && j.Name[0] >= '0' && j.Name[0] <= '9', "the name becomes that of a Service and part of host names: at most 40 characters, no dots, a letter first"},
		{"spec.ranksPerPod", s.RanksPerPod > 0 && jobdoc.Pods(s) > podsMax, "over 4096 pods: raise ranksPerPod"},
		{"spec.ranksPerPod", s.LaunchMode == v1alpha1.LaunchContainer && s.RanksPerPod != 1, "launchMode Container makes a container one rank: ranksPerPod must be 1"},
		{"spec", s.LaunchMode == v1alpha1.LaunchContainer && s.MPI.Used(), "mpi needs launchMode Processes: the launcher gives ranks what their MPI needs"},
		{"spec.template.spec.containers", s.LaunchMode != v1alpha1.LaunchContainer && len(c.Command) == 0, "the container needs a command: the launcher cannot know an image's entry point (or set launchMode: Container)"},
		{"spec.template.spec.restartPolicy", t.RestartPolicy != "" && t.RestartPolicy != corev1.RestartPolicyNever, "template.spec.restartPolicy is Never or absent: ranks are restarted all together, see runPolicy.restartLimit"},
		{"spec.template.spec.hostNetwork", t.HostNetwork, "template.spec.hostNetwork is not needed and not supported: the sidecar has the network"},
		{"spec.template.spec", t.HostPID || t.HostIPC || t.ShareProcessNamespace != nil && *t.ShareProcessNamespace, "template.spec.hostPID, hostIPC and shareProcessNamespace are not supported: the application would see the sidecar's processes and keys"},
		{"spec.sidecar.resources.requests", others(s.Sidecar.Resources.Requests), "requests are cpu and memory; devices has the others"},
		{"spec.sidecar.resources.limits", others(s.Sidecar.Resources.Limits), "limits are cpu and memory; devices has the others"},
		{"spec.template.spec.dnsPolicy", t.DNSPolicy == corev1.DNSDefault, "dnsPolicy Default asks the node's name servers, which do not know the pods of the job: leave it out, or set None with a dnsConfig that knows the cluster's"},
		{"spec.template.spec.dnsConfig", t.DNSPolicy == corev1.DNSNone && !findsPeers(t.DNSConfig), "with dnsPolicy None, dnsConfig needs nameservers that know the cluster's names, and NAMESPACE.svc.DOMAIN among its searches: the sidecars find each other by it"},
		{"spec.template.spec.subdomain", s.PodManagement != v1alpha1.PodsExternal && t.Subdomain != "", "template.spec.subdomain is set by Outrigger: the ranks' pods find each other by it; leave it out"},
		{"spec.template.spec.hostname", s.PodManagement != v1alpha1.PodsExternal && t.Hostname != "", "template.spec.hostname is set by Kubernetes for each pod of a Job: the ranks' pods find each other by it; leave it out"},
		{"spec.devices", needsRDMA(s) && !hasHCA(s), "transport RDMA is required, but devices asks for no card, such as outrigger.dev/hca"},
		{"spec.memory.arena", outside(s.Memory.Arena, "64Ki", "16Ti", true), "arena is 64Ki to 16Ti"},
		{"spec.memory.slab", outside(s.Memory.Slab, "256Ki", "1025Mi", true), "slab is 256Ki to 1Gi"},
		{"spec.memory.allocationsFrom", outside(s.Memory.AllocationsFrom, "4Ki", "16Ti", true), "allocationsFrom is 4Ki to 16Ti"},
		{"spec", s.Memory.AllocationsFrom != nil && !s.MPI.Used(), "memory.allocationsFrom is for programs of an MPI: set mpi, or leave it out"},
		{"spec.memory.shm", outside(s.Memory.SHM, "1Mi", "16Ti", true), "shm is 1Mi to 16Ti"},
		{"spec.memory.shm", s.Memory.SHM != nil && !s.MPI.Used(), "memory.shm is for programs of an MPI: set mpi, or leave it out"},
		{"spec.memory.shm", s.Memory.SHM != nil && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.TrimSuffix(m.MountPath, "/") == "/dev/shm" }), "the template's container mounts /dev/shm itself: leave memory.shm out, or the mount"},
		{"spec.memory.shm", beyond(s.Memory.SHM, c.Resources.Limits), "memory.shm is more than the container's memory limit, which it counts against: raise the limit, or lower shm"},
		{"spec.stdinFile", s.StdinFile != "" && s.LaunchMode == v1alpha1.LaunchContainer, "stdinFile needs launchMode Processes: the launcher opens it"},
		{"spec", s.MPIProgress != "" && !s.MPI.Used(), "mpiProgress is for programs of an MPI: set mpi, or leave it out"},
		{"spec.managedBy", s.ManagedBy != "" && !strings.Contains(s.ManagedBy, "/"), "managedBy is DOMAIN/NAME"},
		{"spec.template.spec.containers[0].name", c.Name == "", "is required"},
	})
	seen := map[string]bool{}
	for i, d := range s.Devices {
		where := fmt.Sprintf("spec.devices[%d]", i)
		wrong = append(wrong, complaints([]rule{
			{where + ".resource", !strings.Contains(d.Resource, "/"), "resource is DOMAIN/NAME"},
			{where, seen[d.Resource], "Duplicate value: " + d.Resource},
		})...)
		seen[d.Resource] = true
	}
	return wrong
}

// findsPeers reports whether a pod with this configuration can resolve the names of pods of
// its job.
func findsPeers(c *corev1.PodDNSConfig) bool {
	return c != nil && len(c.Nameservers) > 0 && slices.ContainsFunc(c.Searches, func(s string) bool { return strings.Contains(s, ".svc.") })
}

// others reports whether a list has other resources than CPU and memory.
func others(l corev1.ResourceList) bool {
	for name := range l {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			return true
		}
	}
	return false
}

func needsRDMA(s *v1alpha1.MPIJobSpec) bool {
	return s.Transport.Policy == v1alpha1.TransportRequired && s.Transport.Type == v1alpha1.TransportRDMA
}

// hasHCA reports whether devices has an RDMA device. A resource of another group may be a
// device that an administrator has named.
func hasHCA(s *v1alpha1.MPIJobSpec) bool {
	for _, d := range s.Devices {
		if strings.HasPrefix(d.Resource, names.ResourceHCA) || !strings.HasPrefix(d.Resource, names.Group+"/") {
			return true
		}
	}
	return false
}

func profileRules(p *v1alpha1.FabricProfileSpec) []error {
	dead, beat := p.DeadAfterMilliseconds, p.HeartbeatMilliseconds
	wrong := complaints([]rule{
		{"spec", dead != nil && beat != nil && *dead < 2**beat, "deadAfterMilliseconds is at least twice heartbeatMilliseconds"},
		{"spec.eagerLimit", outside(p.EagerLimit, "1", "64Ki", false), "eagerLimit is 1 to 64Ki"},
		{"spec.fragment", outside(p.Fragment, "64", "1Mi", false), "fragment is 64 to 1Mi"},
		{"spec.credit", outside(p.Credit, "128Ki", "1Gi", false), "credit is 128Ki to 1Gi"},
	})
	return append(wrong, collectiveRules(p.Collectives)...)
}

// beyond reports whether an amount of memory exceeds a container's limit.
func beyond(q *resource.Quantity, limits corev1.ResourceList) bool {
	limit, limited := limits[corev1.ResourceMemory]
	return q != nil && limited && q.Cmp(limit) > 0
}

// outside reports whether a quantity is given and not within least and most; excluded
// excludes most itself.
func outside(q *resource.Quantity, least, most string, excluded bool) bool {
	if q == nil {
		return false
	}
	end := q.Cmp(resource.MustParse(most))
	return q.Cmp(resource.MustParse(least)) < 0 || end > 0 || excluded && end == 0
}
