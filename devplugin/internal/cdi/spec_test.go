package cdi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const resource = "outrigger.dev/ioat"

func listing(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWrite(t *testing.T) {
	d := &Directory{Path: filepath.Join(t.TempDir(), "cdi"), HostDev: "/host/dev"}
	files := map[string][]string{"0000:00:04.1": {"vfio/vfio", "vfio/31"}, "0000:00:04.0": {"vfio/vfio", "vfio/30"}}
	if err := d.Write(resource, files); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(d.Path, "outrigger.dev-ioat.json"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/ioat.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Error(diff)
	}
	if names := listing(t, d.Path); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

// TestDevicesGo: a removed device is removed from the description, and the file is removed
// with the last device.
func TestDevicesGo(t *testing.T) {
	d := &Directory{Path: t.TempDir()}
	for _, step := range []struct {
		files map[string][]string
		want  []string
	}{
		{map[string][]string{"a": {"x"}, "b": {"y"}}, []string{"outrigger.dev-ioat.json"}},
		{map[string][]string{"b": {"y"}}, []string{"outrigger.dev-ioat.json"}},
		{nil, nil},
		{nil, nil},
	} {
		if err := d.Write(resource, step.files); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, listing(t, d.Path)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestUnchanged: an unchanged description is not written, because runtimes read a changed
// directory again.
func TestUnchanged(t *testing.T) {
	d := &Directory{Path: t.TempDir()}
	for range 2 {
		if err := d.Write(resource, map[string][]string{"a": {"x"}}); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d.file(resource), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(d.file(resource))
	if err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("the file was written again: %v, %v", info.Mode(), err)
	}
}

func TestNowhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Directory{Path: file}).Write(resource, map[string][]string{"a": {"x"}}); err == nil {
		t.Error("a description was written into a file that is no directory")
	}
}

// TestCheck: a name that a runtime would reject is reported before a container needs the
// device.
func TestCheck(t *testing.T) {
	for name, want := range map[string]string{
		"outrigger.dev/hca": "", "Example.com/a_b.c-1": "",
		"3com.example/hca":                "a letter at the beginning",
		"example.com/100g":                "a letter at the beginning",
		strings.Repeat("a", 240) + "/hca": "a shorter name",
	} {
		if err := Check(name); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestOddName: a device whose name is not valid in CDI does not affect the description of
// other devices.
func TestOddName(t *testing.T) {
	d := &Directory{Path: t.TempDir()}
	for range 2 { // the second call finds the existing file
		err := d.Write(resource, map[string][]string{"0000:00:04.0": {"x"}, "rxe 0": {"y"}, "-a": {"z"}})
		if err == nil || !strings.Contains(err.Error(), `"rxe 0"`) || !strings.Contains(err.Error(), `"-a"`) {
			t.Errorf("the error is %v", err)
		}
		text, err := os.ReadFile(d.file(resource))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "0000:00:04.0") || strings.Contains(string(text), "rxe") {
			t.Errorf("the description: %s", text)
		}
	}
	if err := d.Write(resource, map[string][]string{"rxe 0": {"y"}}); err == nil || len(listing(t, d.Path)) != 0 {
		t.Errorf("%v, and %v stays: a description without devices is none", err, listing(t, d.Path))
	}
}
