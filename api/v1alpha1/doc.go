// Package v1alpha1 is the API that a cluster's users write: MPIJob, a parallel
// program with its ranks, and FabricProfile, how the messaging engine is tuned.
//
// Whatever can be wrong in an object is refused by its schema, so that no
// webhook is needed to reject one. The API server's text is the field's comment:
// `kubectl explain mpijob.spec`.
//
// +kubebuilder:object:generate=true
// +groupName=outrigger.dev
package v1alpha1

//go:generate go tool -modfile=../../hack/tools/kube/go.mod controller-gen object paths=.
//go:generate go tool -modfile=../../hack/tools/kube/go.mod controller-gen crd:generateEmbeddedObjectMeta=true paths=. output:crd:dir=../../charts/outrigger/generated/crds
//go:generate go run ../../hack/crd ../../charts/outrigger/generated/crds/outrigger.dev_mpijobs.yaml ../../charts/outrigger/generated/crds/outrigger.dev_fabricprofiles.yaml
//go:generate go run ../../hack/apiref ../..
