package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// field is the schema of one field. A test compares the lists below with the generated
// definitions in both directions. With the API server's own checker of schemas, this
// program would be 50% larger and take three times as long to start.
type field struct {
	path     string // elements of lists: []
	preset   any    // default; nil: none
	min, max int64  // bounds of an integer; max 0: unbounded
	length   [2]int // bounds of the length of a string or list; most 0: unbounded
	enum     []string
	required bool
}

var jobFields = []field{
	{path: "spec", required: true},
	{path: "spec.devices", length: [2]int{0, 8}},
	{path: "spec.devices[].count", preset: int64(1), min: 1, max: 64},
	{path: "spec.devices[].resource", required: true, length: [2]int{3, 253}},
	{path: "spec.launchMode", preset: "Processes", enum: []string{"Processes", "Container"}},
	{path: "spec.managedBy", length: [2]int{3, 63}},
	{path: "spec.mpi", enum: []string{"Auto", "MPICH", "Intel", "OpenMPI", "None"}},
	{path: "spec.mpiProgress", enum: []string{"Off", "Messages", "All"}},
	{path: "spec.podManagement", preset: "Managed", enum: []string{"Managed", "External"}},
	{path: "spec.profileName", length: [2]int{1, 253}},
	{path: "spec.ranks", required: true, min: 1, max: 524288},
	{path: "spec.ranksPerPod", preset: int64(1), min: 1, max: 1024},
	{path: "spec.stdinFile", length: [2]int{1, 4096}},
	{path: "spec.runPolicy.activeDeadlineSeconds", min: 1, max: 2147483647},
	{path: "spec.runPolicy.deadlockAction", preset: "Warn", enum: []string{"Warn", "Fail"}},
	{path: "spec.runPolicy.deadlockAfterSeconds", preset: int64(300), max: 2147483647},
	{path: "spec.runPolicy.disruption", preset: "Allowed", enum: []string{"Allowed", "Prevented"}},
	{path: "spec.runPolicy.gang", preset: "None", enum: []string{"None", "SchedulerPlugins", "Volcano"}},
	{path: "spec.runPolicy.pendingDeadlineSeconds", min: 1, max: 2147483647},
	{path: "spec.runPolicy.restartLimit", preset: int64(0), max: 1000},
	{path: "spec.runPolicy.restartRules", length: [2]int{0, 16}},
	{path: "spec.runPolicy.restartRules[].action", required: true, enum: []string{"Restart", "Fail"}},
	{path: "spec.runPolicy.restartRules[].exitCodes", length: [2]int{0, 64}},
	{path: "spec.runPolicy.restartRules[].reasons", length: [2]int{0, 16}},
	{path: "spec.runPolicy.ttlSecondsAfterFinished", max: 2147483647},
	{path: "spec.template", required: true},
	{path: "spec.transport", preset: map[string]any{"type": "Auto", "policy": "Preferred"}},
	{path: "spec.transport.policy", preset: "Preferred", enum: []string{"Required", "Preferred"}},
	{path: "spec.transport.type", preset: "Auto", enum: []string{"Auto", "RDMA", "TCP", "Ether"}},
}

var profileFields = []field{
	{path: "spec", required: true},
	{path: "spec.collectives", length: [2]int{0, 128}},
	{path: "spec.collectives[].algorithm", required: true, enum: []string{"Dissemination", "TwoLevel", "Binomial", "ScatterAllgather", "Rabenseifner", "RecursiveDoubling", "Ring", "RecursiveHalving", "Pairwise", "Linear", "Bruck", "DoubleTree"}},
	{path: "spec.collectives[].collective", required: true, enum: []string{"Barrier", "Bcast", "Reduce", "Allreduce", "ReduceScatter", "Gather", "Scatter", "Allgather", "Alltoall"}},
	{path: "spec.collectives[].maxBytes", min: 1, max: 1 << 40},
	{path: "spec.collectives[].pods", min: 1, max: 4096},
	{path: "spec.collectives[].ranks", min: 1, max: 524288},
	{path: "spec.deadAfterMilliseconds", min: 10, max: 3600000},
	{path: "spec.encryption", preset: "None", enum: []string{"None", "TLS"}},
	{path: "spec.exposure", preset: "Denied", enum: []string{"Denied", "Allowed"}},
	{path: "spec.heartbeatMilliseconds", min: 1, max: 3600000},
	{path: "spec.eagerChannel", preset: "PiggyBack", enum: []string{"PiggyBack", "Basic", "Pipeline", "ZeroCopy"}},
	{path: "spec.largePath", preset: "TCP", enum: []string{"Auto", "TCP", "Pull"}},
	{path: "spec.rendezvous", preset: "Auto", enum: []string{"Auto", "GetCQE", "Get", "Put", "PutNR", "RPut", "Stream"}},
	{path: "spec.waitPolicy", preset: "Auto", enum: []string{"Auto", "Poll", "Yield", "Block"}},
}

// check sets the default in o if the field is absent, and returns the faults of its value.
func (f *field) check(o map[string]any) []error {
	return f.at(o, "", strings.Split(f.path, "."))
}

func (f *field) at(o map[string]any, where string, steps []string) []error {
	name, list := strings.CutSuffix(steps[0], "[]")
	value, there := o[name]
	if value == nil {
		there = false // as the API server treats null
	}
	where += name
	if len(steps) == 1 {
		return f.value(o, name, where, value, there)
	}
	var parents []any
	if list {
		parents, _ = value.([]any)
	} else if there {
		parents = []any{value}
	}
	var wrong []error
	for i, p := range parents {
		inside, ok := p.(map[string]any)
		if !ok {
			continue // the decoder reports it
		}
		place := where
		if list {
			place += fmt.Sprintf("[%d]", i)
		}
		wrong = append(wrong, f.at(inside, place+".", steps[1:])...)
	}
	return wrong
}

func (f *field) value(o map[string]any, name, where string, value any, there bool) []error {
	switch {
	case !there && f.preset != nil:
		if m, ok := f.preset.(map[string]any); ok {
			o[name] = copied(m)
		} else {
			o[name] = f.preset
		}
		return nil
	case !there && f.required:
		return []error{faultAt(where, "is required")}
	case !there:
		return nil
	}
	if err := f.bound(where, value); err != nil {
		return []error{err}
	}
	return nil
}

func copied(m map[string]any) map[string]any {
	c := map[string]any{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (f *field) bound(where string, value any) error {
	switch v := value.(type) {
	case int64:
		if v < f.min || f.max > 0 && v > f.max {
			return faultAt(where, "is %d, want %s", v, span(f.min, f.max))
		}
	case string:
		if f.enum != nil && !slices.Contains(f.enum, v) {
			return faultAt(where, "is %q, want %s", v, strings.Join(f.enum, ", "))
		}
		if len(v) < f.length[0] || f.length[1] > 0 && len(v) > f.length[1] {
			return faultAt(where, "has %d characters, want %s", len(v), span(int64(f.length[0]), int64(f.length[1])))
		}
	case []any:
		if f.length[1] > 0 && len(v) > f.length[1] {
			return faultAt(where, "has %d entries, want at most %d", len(v), f.length[1])
		}
	}
	return nil
}

func span(least, most int64) string {
	if most == 0 {
		return fmt.Sprintf("at least %d", least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}
