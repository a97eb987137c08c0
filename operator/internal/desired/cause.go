package desired

import (
	"encoding/json"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// annotationCause keeps for which failure a Job was ended: the operator may be killed
// before it has written that into the status, and the pods that the Job ends tell
// nothing but that it did.
const annotationCause = names.Group + "/cause"

// causeMax bounds the annotation, in bytes: a message may have 2,000, of which JSON
// makes six each at most.
const causeMax = 16 << 10

// endedAfter is the deadline of a Job that is ended, in seconds: the shortest one.
const endedAfter = 1

// Ending ends a Job's pods and keeps those that have ended, as a deadline that is
// over does, and says for which failure.
func Ending(f *v1alpha1.Failure) Patch {
	p := Patch{spec: map[string]any{"activeDeadlineSeconds": endedAfter}}
	if text, err := json.Marshal(f); err == nil && f != nil {
		p.meta = map[string]any{"annotations": map[string]string{annotationCause: string(text)}}
	}
	return p
}

// CauseOf is the failure for which a Job was ended; nil: it was not, or does not tell.
// Whoever may change the Job may have written it.
func CauseOf(batch *batchv1.Job) *v1alpha1.Failure {
	text := batch.Annotations[annotationCause]
	if s := batch.Spec.ActiveDeadlineSeconds; text == "" || len(text) > causeMax || s == nil || *s != endedAfter {
		return nil
	}
	f := new(v1alpha1.Failure)
	if err := json.Unmarshal([]byte(text), f); err != nil || f.Reason == "" {
		return nil
	}
	return f
}
