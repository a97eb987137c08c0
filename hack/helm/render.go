// Package helm holds Outrigger's chart to its promises, with Helm's own packages:
// it is rendered, linted and checked against its schema as `helm install` does it,
// and what comes out is read strictly as Kubernetes objects.
package helm

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// Chart is where the chart is, from this folder.
const Chart = "../../charts/outrigger"

// Namespace of the release that is rendered.
const Namespace = "outrigger-system"

// Render makes the chart's objects with these values, as YAML; Helm checks the
// values against the schema first. The second result is what is shown to people.
func Render(values string) ([]*unstructured.Unstructured, string, error) {
	return RenderAs("outrigger", Namespace, values)
}

// RenderAs is Render for a release of another name in another namespace.
func RenderAs(release, namespace, values string) ([]*unstructured.Unstructured, string, error) {
	c, err := loader.LoadDir(Chart)
	if err != nil {
		return nil, "", err
	}
	v := map[string]any{}
	if err := sigsyaml.UnmarshalStrict([]byte(values), &v); err != nil {
		return nil, "", fmt.Errorf("values: %w", err)
	}
	all, err := util.ToRenderValues(c, v, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, "", err
	}
	return objects(files)
}

func objects(files map[string]string) (list []*unstructured.Unstructured, notes string, err error) {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch path.Ext(name) {
		case ".txt":
			notes = files[name]
			continue
		case ".tpl":
			continue
		}
		for i, text := range strings.Split(files[name], "\n---") {
			o := map[string]any{}
			if err := sigsyaml.UnmarshalStrict([]byte(text), &o); err != nil {
				return nil, "", fmt.Errorf("%s, object %d: %w\n%s", name, i, err, text)
			}
			if len(o) > 0 {
				list = append(list, &unstructured.Unstructured{Object: o})
			}
		}
	}
	return list, notes, nil
}

// decode reads an object strictly: a field that its type has not is an error.
func decode(o *unstructured.Unstructured, into any) error {
	raw, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(raw, into)
}
