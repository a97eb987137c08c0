package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestAbsenceIsOfOnePod: the time since which a pod is missing belongs to that pod of
// that attempt of the job, and is reset when the pod exists.
func TestAbsenceIsOfOnePod(t *testing.T) {
	var r recent
	j := new(v1alpha1.MPIJob)
	j.Name = "cg"
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	for i, look := range []struct {
		uid             string
		attempt, number int32
		now, want       int64 // -1: none
	}{
		{"1", 0, 3, 10, 10},
		{"1", 0, 3, 20, 10},
		{"1", 0, 2, 30, 30},
		{"1", 1, 2, 40, 40},
		{"1", 1, -1, 50, -1},
		{"1", 1, 2, 60, 60},
		{"2", 1, 2, 70, 70},
	} {
		j.UID = types.UID(look.uid)
		want := time.Time{}
		if look.want >= 0 {
			want = at(look.want)
		}
		if got := r.absent(j, look.attempt, look.number, at(look.now)); !got.Equal(want) {
			t.Errorf("look %d: since %v, want %v", i, got, want)
		}
	}
}
