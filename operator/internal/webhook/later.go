package webhook

import (
	"bytes"
	"encoding/json"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
)

// changed returns the pod of a request after a change, as JSON. An API server of a
// later version of Kubernetes has fields that this program does not know. They stay as
// in the request, except in the containers and volumes of Outrigger, where every field
// must be the one that Outrigger sets.
func changed(raw []byte, was, is *corev1.Pod) ([]byte, error) {
	before, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(is)
	if err != nil {
		return nil, err
	}
	var trees [3]any
	for i, text := range [][]byte{raw, before, after} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // a number stays the text that it is
		if err := d.Decode(&trees[i]); err != nil {
			return nil, err
		}
	}
	return json.Marshal(carry(trees[0], trees[1], trees[2]))
}

// carry copies into after the fields that raw has and before lacks, where raw and
// before are the same object, decoded as JSON and as a pod.
func carry(raw, before, after any) any {
	switch r := raw.(type) {
	case map[string]any:
		b, ok := before.(map[string]any)
		a, ok2 := after.(map[string]any)
		if !ok || !ok2 {
			return after
		}
		for key, value := range r {
			read, known := b[key]
			now, kept := a[key]
			switch {
			case known && kept:
				a[key] = carry(value, read, now)
			case !known && !kept:
				a[key] = value
			}
		}
	case []any:
		b, ok := before.([]any)
		a, ok2 := after.([]any)
		if !ok || !ok2 || len(b) != len(r) {
			return after
		}
		taken := make([]bool, len(a))
		for i := range r {
			if j := counterpart(b[i], a, taken); j >= 0 {
				taken[j] = true
				a[j] = carry(r[i], b[i], a[j])
			}
		}
	}
	return after
}

// counterpart returns the index of the element after a change that corresponds to
// element: an equal one that is not taken, or one with its name; -1 if there is none or
// its name is one of Outrigger's.
func counterpart(element any, after []any, taken []bool) int {
	e, ok := element.(map[string]any)
	if !ok {
		return -1 // it has no fields
	}
	name, _ := e["name"].(string)
	if inject.Reserved(name) {
		return -1
	}
	named := -1
	for j := range after {
		if taken[j] {
			continue
		}
		if reflect.DeepEqual(element, after[j]) {
			return j
		}
		if a, ok := after[j].(map[string]any); ok && name != "" && a["name"] == name && named < 0 {
			named = j
		}
	}
	return named
}
