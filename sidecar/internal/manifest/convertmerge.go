package manifest

import (
	"fmt"
	"slices"
)

// listKeys are the fields that identify entries of lists in pods and JobSets. A list that
// is not here is replaced as a whole.
var listKeys = map[string]string{
	"replicatedJobs": "name", "containers": "name", "initContainers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath",
	"imagePullSecrets": "name", "schedulingGates": "name",
}

// within are the lists whose entries are merged, and to which a patch adds none. An entry
// of another list is replaced.
var within = []string{"replicatedJobs", "containers", "initContainers"}

// merged returns a field with a patch applied, as Kubernetes merges pods. Entries of the
// patch that do not exist in the base are added to missing.
func merged(base, patch any, field string, missing *[]string) any {
	switch p := patch.(type) {
	case map[string]any:
		b, _ := base.(map[string]any)
		if b == nil {
			b = map[string]any{}
		}
		for name, v := range p {
			b[name] = merged(b[name], v, name, missing)
		}
		return b
	case []any:
		key := listKeys[field]
		if key == "" {
			return p
		}
		b, _ := base.([]any)
		for _, e := range p {
			b = mergedEntry(b, e, field, key, missing)
		}
		return b
	}
	return patch
}

func mergedEntry(base []any, entry any, field, key string, missing *[]string) []any {
	e, _ := entry.(map[string]any)
	at := slices.IndexFunc(base, func(v any) bool {
		has, _ := v.(map[string]any)
		return has != nil && fmt.Sprint(has[key]) == fmt.Sprint(e[key]) // either may be of any type
	})
	deep := slices.Contains(within, field)
	switch {
	case at >= 0 && deep:
		base[at] = merged(base[at], entry, "", missing)
	case at >= 0:
		base[at] = entry
	case deep:
		*missing = append(*missing, fmt.Sprintf("%s %v", field, e[key]))
	default:
		base = append(base, entry)
	}
	return base
}
