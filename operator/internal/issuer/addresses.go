package issuer

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// PathAddresses is the path at which sidecars get the addresses of pods that other
// controllers make. These pods keep the names that their controllers give them, and no
// Service of the job has names for them. PathAddresses?part=N returns the pods of one
// part (bootstrap.AddressesPart).
const PathAddresses = "/v1/addresses"

// addresses returns to a sidecar the addresses of the other pods of its job. They come
// from the pods' statuses, which their kubelets write, and never from a caller.
func (s *Server) addresses(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	token, err := tokenOf(r)
	if err != nil {
		return nil, err
	}
	text := r.URL.Query().Get("part")
	part, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "part is %.80q, want a number", text)
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	_, at, err := s.admit(ctx, r, token)
	switch {
	case err != nil:
		return nil, err
	case at.job.Spec.PodManagement != v1alpha1.PodsExternal:
		return nil, refuse(http.StatusBadRequest, "the pods of MPIJob %s find each other by their names", at.job.Name)
	}
	pods, err := s.located(ctx, at, int32(part))
	if err != nil {
		return nil, err
	}
	return json.Marshal(bootstrap.Addresses{Pods: pods})
}

// located returns the known addresses of the pods of one part. A replica whose caches
// are behind knows fewer, and the sidecar asks again.
func (s *Server) located(ctx context.Context, at *callerPod, part int32) (map[int][]netip.Addr, error) {
	found := map[int][]netip.Addr{}
	first := part * bootstrap.AddressesMax
	for number := first; number < min(first+bootstrap.AddressesMax, desired.Pods(&at.job.Spec)); number++ {
		pods := new(corev1.PodList)
		if err := s.Cache.List(ctx, pods, client.InNamespace(at.job.Namespace), s.OfPlace(at.job.Name, at.attempt, number), client.UnsafeDisableDeepCopy); err != nil {
			return nil, refuse(http.StatusServiceUnavailable, "looking for pods of MPIJob %s: %v", at.job.Name, err)
		}
		if p := holder(pods.Items, at.job); p != nil {
			if list := addressesOf(p); len(list) > 0 {
				found[int(number)] = list
			}
		}
	}
	return found, nil
}

// holder returns, of the pods with the labels of a number, the pod that gets the
// certificate for it; nil if there is none or it has ended.
func holder(pods []corev1.Pod, job *v1alpha1.MPIJob) *corev1.Pod {
	var first *corev1.Pod
	for i := range pods {
		p := &pods[i]
		if !sidecared(p) || verdict.Earlier(p, job) || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if first == nil || cmp.Or(p.CreationTimestamp.Compare(first.CreationTimestamp.Time), cmp.Compare(p.Name, first.Name)) < 0 {
			first = p
		}
	}
	if first == nil || first.Status.Phase == corev1.PodSucceeded {
		return nil
	}
	return first
}

// addressesOf returns a pod's addresses, one per address family.
func addressesOf(p *corev1.Pod) (list []netip.Addr) {
	for _, ip := range append([]corev1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		at, err := netip.ParseAddr(ip.IP)
		if at = at.Unmap().WithZone(""); err == nil && !slices.ContainsFunc(list, func(a netip.Addr) bool { return a.Is4() == at.Is4() }) {
			list = append(list, at)
		}
	}
	return list
}
