package inject

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// depthMax bounds the depth to which nested fields are filled. No type of a pod is deeper.
const depthMax = 12

// fillAll sets each empty field below v to a value.
func fillAll(v reflect.Value, depth int) {
	if depth > depthMax || !v.CanSet() || !v.IsZero() && v.Kind() != reflect.Struct {
		return
	}
	switch v.Kind() { //nolint:exhaustive // no other kinds occur
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillAll(v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillAll(v.Index(0), depth+1)
	case reflect.Map:
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillAll(k, depth+1)
		fillAll(e, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(k, e)
	case reflect.Struct:
		if q, ok := v.Addr().Interface().(*resource.Quantity); ok {
			*q = resource.MustParse("7")
			return
		}
		for i := range v.NumField() {
			fillAll(v.Field(i), depth+1)
		}
	}
}

// eachChange changes each field below v, one at a time, and calls try with the path of the
// field. A field with a value is also cleared, and an element of a list is also repeated.
func eachChange(v reflect.Value, path string, try func(path string)) {
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	change := func(what string, to reflect.Value) {
		v.Set(to)
		try(path + what)
		v.Set(was)
	}
	if !v.IsZero() {
		change(" left out", reflect.Zero(v.Type()))
	} else {
		filled := reflect.New(v.Type()).Elem()
		fillAll(filled, 0)
		if !filled.IsZero() {
			change(" set", filled)
		}
	}
	switch v.Kind() { //nolint:exhaustive // kinds with parts, or with a value that can be changed
	case reflect.String:
		change(" longer", reflect.ValueOf(v.String()+"x").Convert(v.Type()))
	case reflect.Bool:
		change(" turned", reflect.ValueOf(!v.Bool()).Convert(v.Type()))
	case reflect.Int32, reflect.Int64:
		change(" more", reflect.ValueOf(v.Int()+1).Convert(v.Type()))
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		other := reflect.New(v.Type().Elem())
		other.Elem().Set(v.Elem())
		v.Set(other)
		eachChange(other.Elem(), path, try)
		v.Set(was)
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		change(" with one more", reflect.Append(v, reflect.Zero(v.Type().Elem())))
		if v.Len() > 0 {
			change(" with the last twice", reflect.Append(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, 0), v), v.Index(v.Len()-1)))
			other := reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, 0), v)
			v.Set(other)
			for i := range other.Len() {
				eachChange(other.Index(i), fmt.Sprintf("%s[%d]", path, i), try)
			}
			v.Set(was)
		}
	case reflect.Struct:
		if _, ok := v.Addr().Interface().(*resource.Quantity); ok {
			change(" another", reflect.ValueOf(resource.MustParse("7Ti")))
			return
		}
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			eachChange(v.Field(i), path+"."+name, try)
		}
	}
}

// TestEveryFieldOfACopy: a copy of an added container or volume that differs in any field is
// refused, except for changes that other admission makes legitimately and for defaults.
func TestEveryFieldOfACopy(t *testing.T) {
	for _, s := range []*Settings{settings(), func() *Settings {
		s := settings()
		s.Number, s.LocalMetrics, s.User = new(int32(1)), true, new(int64(0))
		return s
	}()} {
		may := []string{
			".imagePullPolicy",            // AlwaysPullImages
			".resources.limits set",       // LimitRanger, for resources that ours does not name
			".resources.requests set",     // as above
			".protocol left out",          // the default
			".apiVersion left out",        // as above
			".timeoutSeconds left out",    // as above
			".periodSeconds left out",     // as above, for a probe whose period is the default
			".successThreshold left out",  // as above
			".failureThreshold left out",  // as above
			".successThreshold more",      // as above: 0 and 1
			".level set", ".level longer", // OpenShift's SELinux level
		}
		if s.User != nil {
			may = append(may, ".runAsUser set", ".runAsUser more") // OpenShift's user
		}
		good := busy()
		if err := Pod(&good, s); err != nil {
			t.Fatal(err)
		}
		tried := 0
		try := func(p *corev1.PodSpec) func(string) {
			return func(path string) {
				tried++
				if err := Pod(p.DeepCopy(), s); err == nil && !slices.ContainsFunc(may, func(m string) bool { return strings.Contains(path, m) }) {
					t.Errorf("%s: the copy is taken", path)
				}
			}
		}
		for i := range good.InitContainers {
			if n := good.InitContainers[i].Name; n == names.ContainerInstall || n == names.ContainerSidecar {
				p := good.DeepCopy()
				eachChange(reflect.ValueOf(&p.InitContainers[i]).Elem(), n, try(p))
			}
		}
		for i := range good.Volumes {
			if isReserved(good.Volumes[i].Name) {
				p := good.DeepCopy()
				eachChange(reflect.ValueOf(&p.Volumes[i]).Elem(), good.Volumes[i].Name, try(p))
			}
		}
		if tried < 300 {
			t.Errorf("%d changes were tried", tried)
		}
	}
}
