package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions of an MPIJob. At most one of them is True.
const (
	// ConditionPending: pods are being made, or wait for nodes.
	ConditionPending = "Pending"
	// ConditionSuspended: runPolicy.suspend, or a queueing controller holds it.
	ConditionSuspended = "Suspended"
	// ConditionRunning: every rank has been started.
	ConditionRunning = "Running"
	// ConditionRestarting: all ranks are being started again after a failure.
	ConditionRestarting = "Restarting"
	// ConditionComplete: every rank has ended with exit code 0.
	ConditionComplete = "Complete"
	// ConditionFailed: status.firstFailure says why.
	ConditionFailed = "Failed"
)

// Reasons of firstFailure, and of the conditions Failed, Restarting and Pending,
// that only a cluster knows. The others are those of api/podlife: what a
// launcher or a sidecar has said, such as RankExited, RankKilled, SidecarLost,
// TransportMissing.
const (
	// ReasonPodLost: a pod's node was lost, its Job was deleted, or a pod of another
	// controller was deleted or evicted.
	ReasonPodLost = "PodLost"
	// ReasonDrained: a pod was deleted, evicted or preempted while its ranks were at work.
	// The job starts again, and spends no restart.
	ReasonDrained = "Drained"
	// ReasonPodNotStarted: an init container failed.
	ReasonPodNotStarted = "PodNotStarted"
	// ReasonOutOfMemory: a container was ended by the kernel for its memory.
	ReasonOutOfMemory = "OutOfMemory"
	// ReasonOutOfStorage: a node evicted a pod that used more local storage than its limits.
	ReasonOutOfStorage = "OutOfStorage"
	// ReasonDeadlineExceeded: runPolicy.activeDeadlineSeconds have passed.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonPendingDeadlineExceeded: not all ranks were started within
	// runPolicy.pendingDeadlineSeconds.
	ReasonPendingDeadlineExceeded = "PendingDeadlineExceeded"
	// ReasonSuspectedDeadlock: every rank waits, and nothing is under way. It is
	// also a reason of the condition Running.
	ReasonSuspectedDeadlock = "SuspectedDeadlock"
	// ReasonPodRejected: nodes rejected pods that were scheduled there.
	ReasonPodRejected = "PodRejected"
	// ReasonUnschedulable: no node has what a pod needs.
	ReasonUnschedulable = "Unschedulable"
	// ReasonPodsMissing: somebody does not let the Job controller make the pods.
	ReasonPodsMissing = "PodsMissing"
	// ReasonImageUnavailable: an image cannot be had.
	ReasonImageUnavailable = "ImageUnavailable"
	// ReasonContainerWaiting: a container cannot be created, or ends and is
	// started again.
	ReasonContainerWaiting = "ContainerWaiting"
	// ReasonSchedulingGated: somebody keeps a pod from being scheduled.
	ReasonSchedulingGated = "SchedulingGated"
	// ReasonAPIError: the API server, or a webhook of its, did not let an object
	// be made, changed or deleted.
	ReasonAPIError = "ApiError"
	// ReasonProfileMissing: profileName names no FabricProfile.
	ReasonProfileMissing = "ProfileMissing"
	// ReasonNameConflict: an object of a needed name exists and is not this job's.
	ReasonNameConflict = "NameConflict"
	// ReasonInvalid: the API server refuses an object that the job needs.
	ReasonInvalid = "Invalid"
	// ReasonUnknown: nobody said why.
	ReasonUnknown = "Unknown"
)

// MPIJobStatus is what is there.
type MPIJobStatus struct {
	// observedGeneration is the generation of the spec that this is about.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions tell the state: Pending, Suspended, Running, Restarting,
	// Complete or Failed.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ranks counts ranks by state.
	// +optional
	Ranks *RankCounts `json:"ranks,omitempty"`
	// transports are those really in use between the pods.
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=32
	// +optional
	Transports []string `json:"transports,omitempty"`
	// firstFailure is the failure that ended the last attempt.
	// +optional
	FirstFailure *Failure `json:"firstFailure,omitempty"`
	// restarts is how often all ranks have been started again after a failure.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Restarts *int32 `json:"restarts,omitempty"`
	// drains is how often all ranks have been started again because a pod was deleted,
	// evicted or preempted, which spends no restart. The number of the present attempt is
	// restarts and drains together.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Drains *int32 `json:"drains,omitempty"`
	// jobName is the batch/v1 Job of the present attempt.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	JobName string `json:"jobName,omitempty"`
	// endedPods are the pods of another controller (podManagement: External) that
	// have ended while the job goes on: that controller may have taken them away.
	// +optional
	EndedPods *EndedPods `json:"endedPods,omitempty"`
	// startTime is when the first attempt was started; after a suspension, when
	// the job was resumed.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when the job ended, however it did.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// EndedPods is how pods have ended.
type EndedPods struct {
	// succeeded are the numbers of those whose ranks have ended well, such as
	// 0-3,5.
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:Pattern=`^[0-9,-]*$`
	// +optional
	Succeeded string `json:"succeeded,omitempty"`
	// told are the first pods of which more is to be told: how they failed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Told []EndedPod `json:"told,omitempty"`
}

// EndedPod is how one pod has ended.
type EndedPod struct {
	// number of the pod in the job.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4095
	// +required
	Number *int32 `json:"number,omitempty"`
	// name of the pod.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// node that it was on.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
	// application is how the application's container has ended.
	// +optional
	Application *EndedContainer `json:"application,omitempty"`
	// sidecar is how the sidecar has ended.
	// +optional
	Sidecar *EndedContainer `json:"sidecar,omitempty"`
	// disruption is why the cluster took the pod away, if it did.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Disruption string `json:"disruption,omitempty"`
}

// EndedContainer is how a container has ended, as the kubelet tells.
type EndedContainer struct {
	// exitCode of its process.
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	// +required
	ExitCode *int32 `json:"exitCode,omitempty"`
	// signal that ended it, 0 for none.
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	Signal *int32 `json:"signal,omitempty"`
	// reason is the kubelet's word.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is its termination message.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Message string `json:"message,omitempty"`
	// time of its end.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}

// RankCounts counts ranks by the state of their pod.
type RankCounts struct {
	// pending ranks wait for their pod to start.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=524288
	// +optional
	Pending *int32 `json:"pending,omitempty"`
	// running ranks have been started.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=524288
	// +optional
	Running *int32 `json:"running,omitempty"`
	// succeeded ranks have ended with exit code 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=524288
	// +optional
	Succeeded *int32 `json:"succeeded,omitempty"`
	// failed ranks are those of pods that have failed.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=524288
	// +optional
	Failed *int32 `json:"failed,omitempty"`
}

// Failure is what ended an attempt: the first cause, not its consequences.
type Failure struct {
	// rank that failed; absent if no rank can be named.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=524287
	// +optional
	Rank *int32 `json:"rank,omitempty"`
	// pod that it was in.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Pod string `json:"pod,omitempty"`
	// node that the pod was on.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
	// exitCode of the rank; 128+N for signal N.
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// reason is one word.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason,omitempty"`
	// message is for people.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`
	// output has the first and the last lines that the ranks of the pod have printed, at most 1 KiB, as
	// its launcher has left them.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Output string `json:"output,omitempty"`
	// attempt is 0 for the first start, 1 for the first restart.
	// attempt is 0 for the first start, 1 when all ranks were started again once.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1001000
	// +optional
	Attempt *int32 `json:"attempt,omitempty"`
	// time of the failure.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}
