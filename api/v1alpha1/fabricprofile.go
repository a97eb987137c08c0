package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FabricProfile tunes the messaging engine of jobs. The engine decides fields that are
// absent. A job reads its profile once, when it starts.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=fp
// +kubebuilder:printcolumn:name="Rendezvous",type=string,JSONPath=`.spec.rendezvous`
// +kubebuilder:printcolumn:name="Eager",type=string,JSONPath=`.spec.eagerLimit`
// +kubebuilder:printcolumn:name="Encryption",type=string,JSONPath=`.spec.encryption`
// +kubebuilder:printcolumn:name="Wait",type=string,JSONPath=`.spec.waitPolicy`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type FabricProfile struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is the tuning.
	// +required
	Spec FabricProfileSpec `json:"spec,omitzero"`
}

// FabricProfileList is a list of FabricProfiles.
//
// +kubebuilder:object:root=true
type FabricProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FabricProfile `json:"items"`
}

// Rendezvous is the protocol of a large message.
//
// +kubebuilder:validation:Enum=Auto;GetCQE;Get;Put;PutNR;RPut;Stream
type Rendezvous string

// LargePath is the way of large messages of the transport Ether.
//
// +kubebuilder:validation:Enum=Auto;TCP;Pull
type LargePath string

// Ways of large messages.
const (
	LargePathAuto LargePath = "Auto"
	LargePathTCP  LargePath = "TCP"
	LargePathPull LargePath = "Pull"
)

// EagerChannel is the way of small messages if the transport writes remotely.
//
// +kubebuilder:validation:Enum=PiggyBack;Basic;Pipeline;ZeroCopy
type EagerChannel string

// Encryption of data between sidecars.
//
// +kubebuilder:validation:Enum=None;TLS
type Encryption string

// Encryptions.
const (
	EncryptionNone Encryption = "None"
	EncryptionTLS  Encryption = "TLS"
)

// Exposure of ranks' own memory to an RDMA device.
//
// +kubebuilder:validation:Enum=Denied;Allowed
type Exposure string

// Exposures.
const (
	ExposureDenied  Exposure = "Denied"
	ExposureAllowed Exposure = "Allowed"
)

// WaitPolicy says how the engine and the ranks wait.
//
// +kubebuilder:validation:Enum=Auto;Poll;Yield;Block
type WaitPolicy string

// Collective is a collective of which a rule may choose the algorithm.
//
// +kubebuilder:validation:Enum=Barrier;Bcast;Reduce;Allreduce;ReduceScatter;Gather;Scatter;Allgather;Alltoall
type Collective string

// CollectiveAlgorithm is an algorithm of collectives.
//
// +kubebuilder:validation:Enum=Dissemination;TwoLevel;Binomial;ScatterAllgather;Rabenseifner;RecursiveDoubling;Ring;RecursiveHalving;Pairwise;Linear;Bruck;DoubleTree
type CollectiveAlgorithm string

// CollectiveRule chooses the algorithm of some collectives.
//
// +kubebuilder:validation:XValidation:rule="self.collective != 'Barrier' || self.algorithm in ['Dissemination', 'TwoLevel']",fieldPath=".algorithm",message="algorithm of Barrier is Dissemination or TwoLevel"
// +kubebuilder:validation:XValidation:rule="self.collective != 'Bcast' || self.algorithm in ['Binomial', 'ScatterAllgather', 'DoubleTree', 'TwoLevel']",fieldPath=".algorithm",message="algorithm of Bcast is Binomial, ScatterAllgather, DoubleTree or TwoLevel"
// +kubebuilder:validation:XValidation:rule="self.collective != 'Reduce' || self.algorithm in ['Binomial', 'Rabenseifner', 'DoubleTree', 'TwoLevel']",fieldPath=".algorithm",message="algorithm of Reduce is Binomial, Rabenseifner, DoubleTree or TwoLevel"
// +kubebuilder:validation:XValidation:rule="self.collective != 'Allreduce' || self.algorithm in ['RecursiveDoubling', 'Rabenseifner', 'Ring', 'TwoLevel']",fieldPath=".algorithm",message="algorithm of Allreduce is RecursiveDoubling, Rabenseifner, Ring or TwoLevel"
// +kubebuilder:validation:XValidation:rule="self.collective != 'ReduceScatter' || self.algorithm in ['RecursiveHalving', 'RecursiveDoubling', 'Pairwise']",fieldPath=".algorithm",message="algorithm of ReduceScatter is RecursiveHalving, RecursiveDoubling or Pairwise"
// +kubebuilder:validation:XValidation:rule="self.collective != 'Gather' || self.algorithm in ['Binomial', 'Linear']",fieldPath=".algorithm",message="algorithm of Gather is Binomial or Linear"
// +kubebuilder:validation:XValidation:rule="self.collective != 'Scatter' || self.algorithm in ['Binomial', 'Linear']",fieldPath=".algorithm",message="algorithm of Scatter is Binomial or Linear"
// +kubebuilder:validation:XValidation:rule="self.collective != 'Allgather' || self.algorithm in ['Ring', 'RecursiveDoubling', 'Bruck', 'TwoLevel']",fieldPath=".algorithm",message="algorithm of Allgather is Ring, RecursiveDoubling, Bruck or TwoLevel"
// +kubebuilder:validation:XValidation:rule="self.collective != 'Alltoall' || self.algorithm in ['Pairwise', 'Bruck', 'TwoLevel']",fieldPath=".algorithm",message="algorithm of Alltoall is Pairwise, Bruck or TwoLevel"
type CollectiveRule struct {
	// collective that the rule is for.
	// +required
	Collective Collective `json:"collective,omitempty"`
	// ranks: the rule is for communicators of exactly so many ranks. Absent: of any number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=524288
	// +optional
	Ranks int32 `json:"ranks,omitempty"`
	// pods: the rule is for communicators whose ranks are in exactly so many pods. Absent:
	// in any number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	// +optional
	Pods int32 `json:"pods,omitempty"`
	// maxBytes is the largest vector of Bcast, Reduce and Allreduce, the largest sum of
	// all blocks of ReduceScatter, and the largest block of a rank of the others. Absent:
	// any size.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1099511627776
	// +optional
	MaxBytes int64 `json:"maxBytes,omitempty"`
	// algorithm of these collectives. One that cannot serve a collective (TwoLevel within
	// one pod, an order of operands that the operation does not allow, more scratch memory
	// than the contract with clients grants) is not used for it.
	// +required
	Algorithm CollectiveAlgorithm `json:"algorithm,omitempty"`
}

// FabricProfileSpec is the tuning.
//
// +kubebuilder:validation:MinProperties=0
// +kubebuilder:validation:XValidation:rule="!has(self.deadAfterMilliseconds) || !has(self.heartbeatMilliseconds) || self.deadAfterMilliseconds >= 2 * self.heartbeatMilliseconds",message="deadAfterMilliseconds is at least twice heartbeatMilliseconds"
type FabricProfileSpec struct {
	// rendezvous is the protocol for large messages. The receiver reads, and detects
	// the end by the link (GetCQE) or by the last byte (Get). Or the receiver lets the
	// sender write: before the message is announced, with a random last byte (Put) or
	// a zero one (PutNR), or after that (RPut). Or the sender streams (Stream). A
	// protocol that the transport lacks is replaced as with Auto.
	// +default="Auto"
	// +optional
	Rendezvous Rendezvous `json:"rendezvous,omitempty"`
	// largePath is the way of large messages if the transport is Ether: by TCP, or pulled
	// by packets (Pull). With Auto, sidecars with packets of more than 4000 bytes (jumbo
	// frames) measure both when they connect, and pull if that is faster by a quarter.
	// Pulled messages need a rendezvous that reads: Auto, GetCQE or Get; the last two
	// pull with TCP, too.
	// +default="TCP"
	// +optional
	LargePath LargePath `json:"largePath,omitempty"`
	// eagerChannel is the way of small messages to the busiest peers, if the transport
	// writes remotely: a ring with flags in its slots (PiggyBack), a ring whose head
	// and tail have writes of their own (Basic), pieces of 16Ki that are copied while
	// others are in flight (Pipeline), or writes without a copy (ZeroCopy).
	// +default="PiggyBack"
	// +optional
	EagerChannel EagerChannel `json:"eagerChannel,omitempty"`
	// eagerLimit is the largest message that is sent without a request to the
	// receiver, 1 to 64Ki.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0')) && quantity(string(self)).isLessThan(quantity('65537'))",message="eagerLimit is 1 to 64Ki"
	// +optional
	EagerLimit *resource.Quantity `json:"eagerLimit,omitempty"`
	// fragment is the payload of one data frame, 64 to 1Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('63')) && quantity(string(self)).isLessThan(quantity('1048577'))",message="fragment is 64 to 1Mi"
	// +optional
	Fragment *resource.Quantity `json:"fragment,omitempty"`
	// credit bounds the eager bytes in flight between two sidecars, 128Ki to 1Gi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('131071')) && quantity(string(self)).isLessThan(quantity('1073741825'))",message="credit is 128Ki to 1Gi"
	// +optional
	Credit *resource.Quantity `json:"credit,omitempty"`
	// encryption of the data between sidecars. They always authenticate each
	// other.
	// +default="None"
	// +optional
	Encryption Encryption `json:"encryption,omitempty"`
	// exposure of memory that ranks register themselves: with Allowed each rank of
	// a job with an RDMA device gets a context of it, and messages between such
	// memory are not copied. Only for programs that are trusted with the device.
	// +default="Denied"
	// +optional
	Exposure Exposure `json:"exposure,omitempty"`
	// waitPolicy of the engine and the ranks: Auto polls while there are cores
	// for it, then yields, then blocks.
	// +default="Auto"
	// +optional
	WaitPolicy WaitPolicy `json:"waitPolicy,omitempty"`
	// heartbeatMilliseconds is the time between signs of life of a sidecar.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600000
	// +optional
	HeartbeatMilliseconds *int32 `json:"heartbeatMilliseconds,omitempty"`
	// deadAfterMilliseconds is the silence after which a sidecar is lost. If it is absent, that is
	// 4.5 s, or a minute while the sidecar's node acknowledges data over TCP: it may be busy.
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600000
	// +optional
	DeadAfterMilliseconds *int32 `json:"deadAfterMilliseconds,omitempty"`
	// collectives choose algorithms for the collectives of programs that use Outrigger's Go
	// client; an MPI makes its collectives itself. The first rule that applies is followed,
	// and collectives without one get the engine's choice. `outrigger bench collectives
	// --tune` writes rules.
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.filter(b, b.collective == a.collective && (has(b.ranks) ? b.ranks : 0) == (has(a.ranks) ? a.ranks : 0) && (has(b.pods) ? b.pods : 0) == (has(a.pods) ? a.pods : 0)).map(b, has(b.maxBytes) ? b.maxBytes : 1099511627777).isSorted())",message="rules for the same collective, ranks and pods are in ascending order of maxBytes, and the one without it is the last"
	// +listType=atomic
	// +optional
	Collectives []CollectiveRule `json:"collectives,omitempty"`
}
