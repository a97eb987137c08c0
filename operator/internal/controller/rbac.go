package controller

//go:generate go tool -modfile=../../../hack/tools/kube/go.mod controller-gen rbac:roleName=outrigger-operator paths=. output:rbac:dir=../../../charts/outrigger/generated

// The rights of the operator. TestRights checks that it uses all of them. ConfigMaps
// and Services are created, read by name and deleted, but never listed, so those of
// others cannot be seen. The only Secret that the operator may read is its own; the
// chart grants that right.

// +kubebuilder:rbac:groups=outrigger.dev,resources=mpijobs,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=outrigger.dev,resources=mpijobs/status,verbs=patch
// +kubebuilder:rbac:groups=outrigger.dev,resources=mpijobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=outrigger.dev,resources=fabricprofiles,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups="",resources=services,verbs=get;create;patch
// +kubebuilder:rbac:groups="",resources=limitranges;events,verbs=list
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;create
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;create;delete
// +kubebuilder:rbac:groups=scheduling.x-k8s.io;scheduling.volcano.sh,resources=podgroups,verbs=get;create;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update
