package desired

import (
	"encoding/json"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// ending returns a Job after it was ended for a failure.
func ending(t *testing.T, f *v1alpha1.Failure) *batchv1.Job {
	t.Helper()
	b := new(batchv1.Job)
	text, err := Ending(f).Of(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCauseIsBounded: the recorded cause of a Job's end has a bounded length for any message,
// and still names the failure.
func TestCauseIsBounded(t *testing.T) {
	rank := int32(3)
	for name, message := range map[string]string{
		"short": "exit code 3", "long": strings.Repeat("x", 2000), "control characters": strings.Repeat("\x01", 2000), "halves of characters": strings.Repeat("\x01\u00e9", 1000),
	} {
		b := ending(t, &v1alpha1.Failure{Reason: "NonZeroExit", Rank: &rank, Message: message})
		kept := AnnotationsRead(b)
		if size := len(kept[annotationCause]); size == 0 || size > causeMax {
			t.Errorf("%s: %d bytes", name, size)
		}
		f := CauseOf(b)
		if f == nil || f.Reason != "NonZeroExit" || *f.Rank != rank || !strings.HasPrefix(message, f.Message) || f.Message == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if len(message) <= 2000 && name != "control characters" && name != "halves of characters" && f.Message != message {
			t.Errorf("%s: the message is cut to %d bytes", name, len(f.Message))
		}
	}
}

// TestForeignAnnotationsAreNotKept: a client that may change Jobs cannot fill the operator's
// memory. A cause is kept only for a Job that was ended, and every kept annotation is short.
func TestForeignAnnotationsAreNotKept(t *testing.T) {
	b := new(batchv1.Job)
	b.Annotations = map[string]string{annotationCause: `{"reason":"NonZeroExit"}`, annotationSteered: strings.Repeat("q", steeredMax+1)}
	if kept := AnnotationsRead(b); len(kept) > 0 {
		t.Errorf("of a Job that runs: %v", kept)
	}
	b = ending(t, nil)
	b.Annotations = map[string]string{annotationCause: strings.Repeat("c", causeMax+1), annotationSteered: "suspend=false,queue="}
	if kept := AnnotationsRead(b); len(kept) != 1 || kept[annotationSteered] == "" {
		t.Errorf("of one that was ended: %v", kept)
	}
}

// TestWishesAreKept: the cache keeps the longest wishes that a job can have. If it dropped
// them, every reconciliation would patch the Job.
func TestWishesAreKept(t *testing.T) {
	a := attempt("cg", 4, 2)
	a.Job.Labels = map[string]string{LabelQueue: strings.Repeat("q", validation.LabelValueMaxLength)}
	a.Job.Spec.RunPolicy.Disruption = v1alpha1.DisruptionPrevented
	for _, suspend := range []*bool{nil, new(true), new(false)} {
		a.Job.Spec.RunPolicy.Suspend = suspend
		b := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationSteered: a.wishes()}}}
		b.Annotations = AnnotationsRead(b)
		if !a.Steered(b) {
			t.Errorf("%d bytes are not kept", len(a.wishes()))
		}
	}
}

// TestEndSaysWhatIsSo: a Job that is ended for a failure reports failed pods if it has some. A
// Job whose ranks have succeeded reports no failure.
func TestEndSaysWhatIsSo(t *testing.T) {
	for reason, limit := range map[string]*int32{"RankExited": new(int32(0)), "": new(int32(0)), ReasonSucceeded: nil} {
		var f *v1alpha1.Failure
		if reason != "" {
			f = &v1alpha1.Failure{Reason: reason}
		}
		b := ending(t, f)
		if got := b.Spec.BackoffLimit; (got == nil) != (limit == nil) || got != nil && *got != *limit || *b.Spec.ActiveDeadlineSeconds != endedAfter {
			t.Errorf("%q: backoffLimit %v, activeDeadlineSeconds %d", reason, got, *b.Spec.ActiveDeadlineSeconds)
		}
	}
}
