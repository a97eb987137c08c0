package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// ReadCollectives reads the rules of a file with one FabricProfile, which sets nothing else.
func ReadCollectives(text []byte) ([]bootstrap.CollectiveRule, error) {
	objects, err := split(text)
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 || objects[0].kind != "FabricProfile" {
		return nil, fmt.Errorf("%d objects, want one FabricProfile with spec.collectives", len(objects))
	}
	o := &objects[0]
	p := new(v1alpha1.FabricProfile)
	if err := decode(o, profileFields, p, func() []error { return profileRules(&p.Spec) }); err != nil {
		return nil, fmt.Errorf("FabricProfile %s: %w", o.name, err)
	}
	spec, _ := o.tree["spec"].(map[string]any)
	var wrong []error
	for name := range spec {
		if name != "collectives" {
			wrong = append(wrong, faultAt("spec."+name, "is not for --collectives, which reads spec.collectives alone: leave it out, or put the profile into a job file (-f)"))
		}
	}
	if len(p.Spec.Collectives) == 0 {
		wrong = append(wrong, faultAt("spec.collectives", "has no rules"))
	}
	return jobdoc.Collectives(&p.Spec), o.at.locate(wrong)
}

// collectiveRules checks the rules of a profile: the algorithms are those of their collectives, and
// the sizes are in order.
func collectiveRules(list []v1alpha1.CollectiveRule) (wrong []error) {
	rules := jobdoc.Collectives(&v1alpha1.FabricProfileSpec{Collectives: list})
	for i, r := range rules {
		where := fmt.Sprintf("spec.collectives[%d]", i)
		known := bootstrap.Algorithms(r.Collective)
		if known != nil && !slices.Contains(known, r.Algorithm) {
			var names []string
			for _, a := range known {
				names = append(names, jobdoc.ProfileWord(a))
			}
			last := len(names) - 1
			wrong = append(wrong, faultAt(where+".algorithm", "is %q: algorithm of %s is %s or %s", list[i].Algorithm, list[i].Collective, strings.Join(names[:last], ", "), names[last]))
		}
		if bootstrap.LargerBefore(rules[:i], r) >= 0 {
			wrong = append(wrong, faultAt(where+".maxBytes", "is %d: rules for the same collective, ranks and pods are in ascending order of maxBytes, and the one without it is the last", r.MaxBytes))
		}
	}
	return wrong
}
