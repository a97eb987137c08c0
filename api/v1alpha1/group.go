package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// GroupVersion is that of every type here.
var GroupVersion = schema.GroupVersion{Group: names.Group, Version: "v1alpha1"}

// Kind is MPIJob's group, version and kind.
var Kind = GroupVersion.WithKind("MPIJob")

// AddToScheme teaches a scheme these types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &MPIJob{}, &MPIJobList{}, &FabricProfile{}, &FabricProfileList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
