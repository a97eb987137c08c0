package desired

import (
	"encoding/json"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// annotationCause records the failure for which a Job was ended. The operator may be
// killed before it has written the failure to the status, and the status of the ended
// pods does not have the cause.
const annotationCause = names.Group + "/cause"

// causeMax bounds the annotation, in bytes. The cache keeps it for each ended Job, and
// any client with the right to change Jobs can write it.
const causeMax = 4 << 10

// endedAfter is the deadline of a Job that is ended, in seconds: the shortest possible.
const endedAfter = 1

// ReasonSucceeded is the reason for ending a Job whose ranks have all succeeded while
// containers of others keep pods running.
const ReasonSucceeded = "RanksSucceeded"

// Ending returns the patch that ends a Job's running pods and keeps the ended ones, as
// an exceeded deadline does, and that records the failure. It also sets backoffLimit to
// 0, unless the job succeeded: the Job controller checks that limit first, so that a
// Job with a failed pod reports the failure, and not a deadline that its user has not
// set.
func Ending(f *v1alpha1.Failure) Patch {
	p := Patch{spec: map[string]any{"activeDeadlineSeconds": endedAfter}}
	if f == nil || f.Reason != ReasonSucceeded {
		p.spec["backoffLimit"] = 0
	}
	if text := cause(f); text != "" {
		p.meta = map[string]any{"annotations": map[string]string{annotationCause: text}}
	}
	return p
}

// cause returns a failure as JSON. It shortens the message if the JSON is too long: a
// control character takes six bytes.
func cause(f *v1alpha1.Failure) string {
	if f == nil {
		return ""
	}
	whole := *f
	whole.Output = "" // the pod's status has it
	for short := whole; ; short.Message = strings.ToValidUTF8(short.Message[:len(short.Message)/2], "") {
		text, err := json.Marshal(&short)
		if err != nil || len(text) > causeMax && short.Message == "" {
			return ""
		}
		if len(text) <= causeMax {
			return string(text)
		}
	}
}

// ended reports whether Ending has ended a Job.
func ended(batch *batchv1.Job) bool {
	s := batch.Spec.ActiveDeadlineSeconds
	return s != nil && *s == endedAfter
}

// CauseOf returns the failure for which a Job was ended; nil if it was not ended or has
// no record. Any client with the right to change the Job may have written it.
func CauseOf(batch *batchv1.Job) *v1alpha1.Failure {
	text := batch.Annotations[annotationCause]
	if text == "" || len(text) > causeMax || !ended(batch) {
		return nil
	}
	f := new(v1alpha1.Failure)
	if err := json.Unmarshal([]byte(text), f); err != nil || f.Reason == "" {
		return nil
	}
	return f
}
