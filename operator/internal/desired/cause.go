package desired

import (
	"encoding/json"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// annotationCause keeps for which failure a Job was ended: the operator may be killed
// before it has written that into the status, and the pods that the Job ends tell
// nothing but that it did.
const annotationCause = names.Group + "/cause"

// causeMax bounds the annotation, in bytes. The cache keeps it of each Job that was
// ended, and whoever may change Jobs may write it.
const causeMax = 4 << 10

// endedAfter is the deadline of a Job that is ended, in seconds: the shortest one.
const endedAfter = 1

// ReasonSucceeded is that of a Job which is ended since all its ranks have ended well, while
// containers of others keep pods running.
const ReasonSucceeded = "RanksSucceeded"

// Ending ends a Job's pods and keeps those that have ended, as a deadline that is
// over does, and says for which failure. Where a pod has failed the Job says so and not that
// it had a deadline, which its user has never set: the Job controller looks at the limit
// first.
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

// cause is a failure as JSON, of which the message is cut where it has no room: a
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

// ended reports whether a Job was ended so.
func ended(batch *batchv1.Job) bool {
	s := batch.Spec.ActiveDeadlineSeconds
	return s != nil && *s == endedAfter
}

// CauseOf is the failure for which a Job was ended; nil: it was not, or does not tell.
// Whoever may change the Job may have written it.
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
