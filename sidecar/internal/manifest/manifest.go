// Package manifest reads an MPIJob as a cluster would, and plans its run on one machine:
// the ranks, their program and environment, their tuning, and the fields that are ignored
// because there is no container, no node and no API server. It also converts jobs of
// Kubeflow's operators to MPIJobs (Convert).
//
// Read parses and validates a file, File.Plan makes the Plan for a machine, and Plan.Status
// returns the status that the job's object would have at the end. The schema is checked by
// the lists in fields.go and the rules in rules.go, which tests compare with the generated
// definitions.
package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	yamldocs "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// SizeMax bounds a file, as etcd bounds an object.
const SizeMax = 3 << 20

// File is the content of a file of Kubernetes objects that has a meaning on one machine.
type File struct {
	Job     *v1alpha1.MPIJob           // with the defaults of the schema
	Profile v1alpha1.FabricProfileSpec // the profile that the job names; zero: none
	Others  []string                   // objects that have no meaning on one machine: "ConfigMap input"
	written map[string]any             // the job as its author wrote it
}

// object is one document of a file.
type object struct {
	raw  []byte // JSON
	at   lines
	tree map[string]any
	kind string
	name string
}

// Read parses YAML or JSON with exactly one MPIJob. Unknown fields, duplicate fields and
// values that the schema refuses are errors, which name the field.
func Read(text []byte) (*File, error) {
	objects, err := split(text)
	if err != nil {
		return nil, err
	}
	f := new(File)
	profiles := map[string]*object{}
	for i := range objects {
		o := &objects[i]
		group, _, _ := strings.Cut(fmt.Sprint(o.tree["apiVersion"]), "/")
		switch {
		case group == v1alpha1.GroupVersion.Group && o.kind == v1alpha1.Kind.Kind:
			if f.Job != nil {
				return nil, fmt.Errorf("MPIJobs %s and %s: one job at a time", f.Job.Name, o.name)
			}
			if f.Job, err = readJob(o); err != nil {
				return nil, fmt.Errorf("MPIJob %s: %w", o.name, err)
			}
			f.written = o.tree
		case group == v1alpha1.GroupVersion.Group && o.kind == "FabricProfile":
			profiles[o.name] = o
		default:
			f.Others = append(f.Others, strings.TrimSpace(o.kind+" "+o.name))
		}
	}
	if f.Job == nil {
		for i := range objects {
			if foreign(objects[i].tree) {
				return nil, fmt.Errorf("%s %s is of Kubeflow's operators (%v): `outrigger convert -f FILE` makes an MPIJob of Outrigger's of it", objects[i].kind, objects[i].name, objects[i].tree["apiVersion"])
			}
		}
		return nil, fmt.Errorf("no MPIJob (apiVersion %s) in it", v1alpha1.GroupVersion)
	}
	return f, f.readProfile(profiles)
}

// readProfile reads the profile that the job names. Other profiles of the file are ignored.
func (f *File) readProfile(profiles map[string]*object) error {
	name := f.Job.Spec.ProfileName
	for other := range profiles {
		if other != name {
			f.Others = append(f.Others, "FabricProfile "+other)
		}
	}
	o := profiles[name]
	if name == "" {
		return nil
	}
	if o == nil {
		return fmt.Errorf("%s: FabricProfile %s is not in the file: add it, after a line of three dashes", v1alpha1.ReasonProfileMissing, name)
	}
	p := new(v1alpha1.FabricProfile)
	if err := decode(o, profileFields, p, func() []error { return profileRules(&p.Spec) }); err != nil {
		return fmt.Errorf("FabricProfile %s: %w", name, err)
	}
	f.Profile = p.Spec
	return nil
}

func readJob(o *object) (*v1alpha1.MPIJob, error) {
	j := new(v1alpha1.MPIJob)
	if err := decode(o, jobFields, j, func() []error { return jobRules(j) }); err != nil {
		return nil, err
	}
	if j.Namespace == "" {
		j.Namespace = "default"
	}
	if texts := validation.IsDNS1123Label(j.Namespace); len(texts) > 0 {
		return nil, fmt.Errorf("metadata.namespace is %q: %s", j.Namespace, texts[0])
	}
	return j, nil
}

// decode sets into to o with the schema's defaults, and validates it.
func decode(o *object, fields []field, into any, rules func() []error) error {
	if version := o.tree["apiVersion"]; version != v1alpha1.GroupVersion.String() {
		return fmt.Errorf("apiVersion is %v, want %s", version, v1alpha1.GroupVersion)
	}
	if wrong := misfits(reflect.TypeOf(into), o.tree); len(wrong) > 0 {
		return o.at.locate(wrong)
	}
	strict, err := json.UnmarshalStrict(o.raw, into)
	if err := errors.Join(append(strict, err)...); err != nil {
		return err
	}
	whole := runtime.DeepCopyJSON(o.tree)
	var wrong []error
	for i := range fields {
		wrong = append(wrong, fields[i].check(whole)...)
	}
	// Converted again with the added defaults, on which the rules rely.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(whole, into); err != nil {
		return err
	}
	wrong = append(wrong, rules()...)
	if texts := validation.IsDNS1123Subdomain(o.name); len(texts) > 0 {
		wrong = append(wrong, faultAt("metadata.name", "is %q: %s", o.name, texts[0]))
	}
	return o.at.locate(wrong)
}

// split splits a file into its objects.
func split(text []byte) ([]object, error) {
	if len(text) > SizeMax {
		return nil, fmt.Errorf("over %d bytes", SizeMax)
	}
	// The reader splits documents, and does not change a text with these line ends.
	text = append(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), '\n')
	var all []object
	docs := yamldocs.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number, line, end := 1, 1, 0; ; number++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		begin := end + max(bytes.Index(text[end:], doc), 0)
		first := line + bytes.Count(text[end:begin], []byte("\n"))
		end, line = begin+len(doc), first+bytes.Count(doc, []byte("\n"))
		raw, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, inFile(err, first)
		}
		if string(bytes.TrimSpace(raw)) == "null" {
			continue // only comments
		}
		o := object{raw: raw, at: lines{doc, first}}
		if err := json.UnmarshalCaseSensitivePreserveInts(raw, &o.tree); err != nil {
			return nil, fmt.Errorf("document %d is no object: %w", number, err)
		}
		o.kind, _ = o.tree["kind"].(string)
		if m, ok := o.tree["metadata"].(map[string]any); ok {
			o.name, _ = m["name"].(string)
		}
		if o.kind == "" {
			return nil, fmt.Errorf("document %d has no kind", number)
		}
		all = append(all, o)
	}
}
