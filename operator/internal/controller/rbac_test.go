package controller

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestRights: the operator has the rights that it uses, and no others. The comment of
// each resource names the code that makes the calls; when a call is removed, its verb
// has to be removed too.
func TestRights(t *testing.T) {
	want := map[string][]string{
		"/events":                            {"list"},                                              // newsOf
		"/limitranges":                       {"list"},                                              // Limits
		"/namespaces":                        {"get"},                                               // Users
		"/configmaps":                        {"create", "delete", "get"},                           // Reconciler.document, drop
		"/services":                          {"create", "get", "patch"},                            // Reconciler.service
		"/nodes":                             {"get"},                                               // nodes.see
		"/pods":                              {"get", "list", "watch"},                              // the cache; the issuer, past it
		"authentication.k8s.io/tokenreviews": {"create"},                                            // the issuer
		"batch/jobs":                         {"create", "delete", "get", "list", "patch", "watch"}, // the cache, apply, change, remove
		"coordination.k8s.io/leases":         {"create", "get", "update"},                           // the election of a leader
		"events.k8s.io/events":               {"create", "patch"},                                   // the recorder
		"networking.k8s.io/networkpolicies":  {"create", "get"},                                     // prepare
		"outrigger.dev/fabricprofiles":       {"get", "list", "watch"},                              // the cache
		"outrigger.dev/mpijobs":              {"delete", "get", "list", "watch"},                    // the cache, whole, time to live
		"outrigger.dev/mpijobs/finalizers":   {"update"},                                            // owner references that block deletion
		"outrigger.dev/mpijobs/status":       {"patch"},                                             // writeStatus
		"policy/poddisruptionbudgets":        {"create", "delete", "get"},                           // budget
		"scheduling.volcano.sh/podgroups":    {"create", "delete", "get"},                           // group, remove
		"scheduling.x-k8s.io/podgroups":      {"create", "delete", "get"},
	}
	text, err := os.ReadFile("../../../charts/outrigger/generated/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	role := new(rbacv1.ClusterRole)
	if err := yaml.UnmarshalStrict(text, role); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, r := range role.Rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				got[group+"/"+resource] = r.Verbs
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-calls +role.yaml):\n%s", diff)
	}
}
