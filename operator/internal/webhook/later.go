package webhook

import (
	"bytes"
	"encoding/json"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
)

// changed is the pod of a request after a change, as JSON. An API server of a later version of
// Kubernetes knows fields that this program does not: these stay as the request has them, but
// in what Outrigger adds to pods, where every field has to be the one that is added.
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

// carry puts into after what raw has and before lacks, where the two are the same thing, read
// as JSON and as a pod.
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

// counterpart is the index of an element of a list after a change: of those that are not taken
// the equal one, else the one of its name; -1: there is none, or it is one that Outrigger adds.
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
