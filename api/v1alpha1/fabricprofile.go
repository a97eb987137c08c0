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
}
