package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions of an MPIJob. At most one of them is True.
const (
	// ConditionPending: pods are being made or start (`PodsStarting`, and after 10 seconds
	// which pod waits for what, in the words of its sidecar, its kubelet or its scheduler,
	// also for an image that is being pulled, an init container that has not ended, or a
	// resource claim), or they wait: for a node (`Unschedulable`), for the Job controller to
	// be allowed to make them (`PodsMissing`), for an image (`ImageUnavailable`), a profile
	// (`ProfileMissing`), or a user (`Invalid`, `NameConflict`).
	// +claim of conditions: operator/internal/controller TestSidecarIsQuoted
	// +claim of conditions: operator/internal/controller TestEventsAreQuoted
	// +claim of conditions: operator/internal/controller TestNewsOfAPull
	// +claim of conditions: operator/internal/verdict TestWhatHasNoEvent
	ConditionPending = "Pending"
	// ConditionSuspended: `runPolicy.suspend` is set, or a queue holds the job (`Queued`).
	ConditionSuspended = "Suspended"
	// ConditionRunning: every rank has been started: its sidecar is ready, and its launcher
	// or program runs. With the reason `SuspectedDeadlock` all of them only wait, with
	// `RanksDisagree` some of them are in different collectives. A native sidecar of the
	// template that ends again and again is named.
	// +claim of conditions: operator/internal/verdict TestRanksStartWithTheirSidecar
	// +claim of conditions: operator/internal/verdict TestSidecarOfTheUsersEndsAgainAndAgain
	ConditionRunning = "Running"
	// ConditionRestarting: an attempt has failed, and its pods are being removed.
	ConditionRestarting = "Restarting"
	// ConditionComplete: every rank has ended with exit code 0, and each rank that attached
	// has called `Close`.
	ConditionComplete = "Complete"
	// ConditionFailed: the job has failed; `status.firstFailure` has the reason.
	ConditionFailed = "Failed"
)

// Reasons of firstFailure, and of the conditions Failed, Restarting and Pending,
// that only a cluster knows. The others are those of api/podlife: what a
// launcher or a sidecar has said, such as RankExited, RankKilled, SidecarLost,
// TransportMissing.
const (
	// ReasonPodLost: a pod's node was lost, its Job was deleted, a pod of another controller
	// was deleted or evicted, or the template's `nodeName` names no node.
	// +claim of conditions: operator/internal/verdict TestNodeThatIsNotThere
	//
	// Remedy: `restartLimit`; another `nodeName`, or none.
	ReasonPodLost = "PodLost"
	// ReasonDrained: a pod was deleted, evicted or preempted while its ranks ran. The job
	// starts again, and uses no restart.
	//
	// Remedy: nothing; `disruption: Prevented` keeps drains away.
	ReasonDrained = "Drained"
	// ReasonPodNotStarted: an init container failed.
	//
	// Remedy: `kubectl logs POD -c NAME`, with the name in the message.
	ReasonPodNotStarted = "PodNotStarted"
	// ReasonOutOfMemory: the kernel ended a container for its memory; the message names the
	// container.
	//
	// Remedy: raise the limit of the application's container. If the sidecar used more
	// memory than its limit, report it: the formula is wrong.
	ReasonOutOfMemory = "OutOfMemory"
	// ReasonOutOfStorage: a node evicted a pod that used more than the limit of an
	// `emptyDir` or the `ephemeral-storage` limits of its containers.
	//
	// Remedy: raise the limit, or write to another volume.
	ReasonOutOfStorage = "OutOfStorage"
	// ReasonDeadlineExceeded: `activeDeadlineSeconds` were over, those of `runPolicy` or
	// those of the template's pods, as the message says; of the former it says what the
	// ranks waited for, if the operator reaches the sidecars. The job is not restarted.
	// +claim of conditions: operator/internal/verdict TestPodsOwnDeadline
	//
	// Remedy: raise it, or correct the program that waits.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonPendingDeadlineExceeded: not all ranks were started within
	// `pendingDeadlineSeconds`; the message says what they waited for.
	//
	// Remedy: more nodes, or a smaller job; with a `restartLimit` it is tried again, and
	// other jobs may have had the nodes meanwhile.
	ReasonPendingDeadlineExceeded = "PendingDeadlineExceeded"
	// ReasonSuspectedDeadlock: every rank has only waited for `deadlockAfterSeconds`. It is
	// a failure with `deadlockAction: Fail`, otherwise a reason of `Running`.
	//
	// Remedy: docs/mpijob.md, Jobs that hang.
	ReasonSuspectedDeadlock = "SuspectedDeadlock"
	// ReasonPodRejected: nodes turned away one of the pods that were scheduled there more
	// than 20 times, or cannot run it at all (AppArmor, sysctls).
	//
	// Remedy: what the message names; devices that are not healthy; `kubectl describe pod`.
	ReasonPodRejected = "PodRejected"
	// ReasonUnschedulable: no node has what a pod needs; the job waits.
	//
	// Remedy: the message lists what is missing: `devices`, memory, tolerations.
	ReasonUnschedulable = "Unschedulable"
	// ReasonPodsMissing: pods are not made for 30 seconds, or 10 where the Job's events say
	// who refuses them, as the message then does: a quota, a LimitRange, Pod Security
	// (`violates PodSecurity`) or a webhook refuses them. For a quota or LimitRange the
	// message names the containers and the fields that set their requests.
	// +claim of conditions: operator/internal/verdict TestRemedyNamesTheContainer
	//
	// Remedy: what the message says; `kubectl describe job NAME-ATTEMPT` if it quotes none.
	ReasonPodsMissing = "PodsMissing"
	// ReasonImageUnavailable: an image cannot be pulled; the job waits.
	//
	// Remedy: correct its name and tag; add pull secrets to the template, which serve the
	// sidecar's image too.
	ReasonImageUnavailable = "ImageUnavailable"
	// ReasonContainerWaiting: a container cannot be created, or ends and is started again;
	// the job waits.
	//
	// Remedy: read the message: a Secret or ConfigMap is missing, or an init container's log
	// has the cause.
	ReasonContainerWaiting = "ContainerWaiting"
	// ReasonSchedulingGated: the pod has `schedulingGates`; the job waits.
	//
	// Remedy: the controller that set them has to remove them.
	ReasonSchedulingGated = "SchedulingGated"
	// ReasonAPIError: the API server answered with an error when objects were made, or when
	// the Job of a running job was changed or ended (suspend, queue, disruption), often for
	// a webhook of another controller. The call is repeated after 0.1 s, then after twice as
	// long each time, at most 5 minutes.
	//
	// Remedy: the message names the webhook.
	ReasonAPIError = "ApiError"
	// ReasonProfileMissing: `profileName` names no FabricProfile of the namespace; the job
	// waits.
	//
	// Remedy: create it.
	ReasonProfileMissing = "ProfileMissing"
	// ReasonNameConflict: an object of a needed name exists and is not this job's, or pods
	// of an earlier MPIJob of this name, whose host names the new pods need, still end; it
	// waits for these for their grace and 20 seconds. The Service of a running job is put
	// back within 5 minutes, while its pods start within 30 seconds.
	// +claim of conditions: operator/internal/controller TestConflictGoes
	// +claim of conditions: operator/internal/controller TestServiceIsPutBack
	//
	// Remedy: rename the job, or remove the object: the job then continues by itself.
	ReasonNameConflict = "NameConflict"
	// ReasonInvalid: the API server refuses an object that the job needs; the job waits.
	//
	// Remedy: read the message; delete the job, correct the template.
	ReasonInvalid = "Invalid"
	// ReasonUnknown: something ended the job, and no component reported the cause.
	//
	// Remedy: `kubectl get events`, the status of the pods.
	ReasonUnknown = "Unknown"
)

// MPIJobStatus is the observed state of a job.
type MPIJobStatus struct {
	// observedGeneration is the generation of the spec that the status is of.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions have the state: Pending, Suspended, Running, Restarting, Complete or
	// Failed.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ranks counts ranks by state.
	// +optional
	Ranks *RankCounts `json:"ranks,omitempty"`
	// transports are those that are in use between the pods.
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
	// evicted or preempted, which uses no restart. The number of the present attempt is
	// the sum of restarts and drains.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Drains *int32 `json:"drains,omitempty"`
	// jobName is the batch/v1 Job of the present attempt.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	JobName string `json:"jobName,omitempty"`
	// endedPods are the pods of another controller (podManagement: External) that have
	// ended while the job continues, since that controller may have deleted them.
	// +optional
	EndedPods *EndedPods `json:"endedPods,omitempty"`
	// startTime is when the first attempt was started; after a suspension, when
	// the job was resumed.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when the job ended, successfully or not.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// EndedPods says how pods have ended.
type EndedPods struct {
	// succeeded are the numbers of pods whose ranks have ended well, such as 0-3,5.
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:Pattern=`^[0-9,-]*$`
	// +optional
	Succeeded string `json:"succeeded,omitempty"`
	// told are the first pods that failed, with details.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Told []EndedPod `json:"told,omitempty"`
}

// EndedPod says how one pod has ended.
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
	// node that the pod was on.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
	// application is how the application's container has ended.
	// +optional
	Application *EndedContainer `json:"application,omitempty"`
	// sidecar is how the sidecar has ended.
	// +optional
	Sidecar *EndedContainer `json:"sidecar,omitempty"`
	// disruption is the reason why the cluster removed the pod, if it did.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Disruption string `json:"disruption,omitempty"`
}

// EndedContainer says how a container has ended, as the kubelet reports it.
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
	// reason is that of the kubelet.
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
	// pod of the rank.
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
	// reason is one word, such as RankExited.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason,omitempty"`
	// message describes the failure.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`
	// output has the first and the last lines that the ranks of the pod have printed,
	// at most 1 KiB, from the termination message of its launcher.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Output string `json:"output,omitempty"`
	// attempt is 0 for the first start, 1 when all ranks were started again once.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1001000
	// +optional
	Attempt *int32 `json:"attempt,omitempty"`
	// time of the failure.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}
