package devices

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEnv(t *testing.T) {
	for resource, want := range map[string]string{
		"outrigger.dev/hca": "OUTRIGGER_DEVICES_HCA", "example.com/fast-hca.2": "OUTRIGGER_DEVICES_FAST_HCA_2", "x/Ä": "OUTRIGGER_DEVICES__",
	} {
		if got := Env(resource); got != want {
			t.Errorf("Env(%q) = %q, want %q", resource, got, want)
		}
	}
}

// TestRoundTrip: the sidecar reads what the plugin writes for three resources.
func TestRoundTrip(t *testing.T) {
	hca := Device{Kind: "hca", Name: "mlx5_2", PCI: []string{"0000:3b:00.2"}, Files: []string{"/dev/infiniband/uverbs2"}, LinkType: "ethernet", Shared: true}
	ioat := Device{Kind: "ioat", Name: "0000:00:04.0", NUMA: 1, Files: []string{"/dev/vfio/vfio", "/dev/vfio/30"}}
	ether := Device{Kind: KindEther, Name: "net1", NUMA: -1, Shared: true}
	got, err := FromEnv([]string{
		"HOME=/", Env("outrigger.dev/ether") + "=" + Encode([]Device{ether}), Env("outrigger.dev/ioat") + "=" + Encode([]Device{ioat}), Env("outrigger.dev/hca") + "=" + Encode([]Device{hca}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Device{ether, hca, ioat}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRefused(t *testing.T) {
	many := strings.Repeat(`{"kind":"hca","name":"a","files":["/dev/a"]},`, devicesMax)
	for name, c := range map[string]struct{ value, cause string }{
		"not JSON":     {"mlx5_0", "invalid character"},
		"unknown kind": {`[{"kind":"gpu","name":"a","files":["/dev/a"]}]`, `unknown kind "gpu"`},
		"no file":      {`[{"kind":"hca","name":"a"}]`, "no name or no file"},
		"no interface": {`[{"kind":"ether","name":""}]`, "no name or no file"},
		"elsewhere":    {`[{"kind":"hca","name":"a","files":["/dev/../etc/shadow"]}]`, "not below /dev"},
		"too long":     {strings.Repeat(" ", valueMax+1), "longer than"},
		"too many":     {"[" + many + `{"kind":"hca","name":"a","files":["/dev/a"]}]`, "more than"},
	} {
		_, err := FromEnv([]string{EnvPrefix + "HCA=" + c.value})
		if err == nil || !strings.Contains(err.Error(), c.cause) {
			t.Errorf("%s: %v, want %q", name, err, c.cause)
		}
	}
}

// FuzzFromEnv: an accepted value can be written and read again.
func FuzzFromEnv(f *testing.F) {
	f.Add(`[{"kind":"hca","name":"mlx5_0","numa":0,"files":["/dev/infiniband/uverbs0"]}]`)
	f.Add(`[{"kind":"dsa","name":"wq0.1","numa":-1,"files":["/dev/dsa/wq0.1"],"shared":true}]`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, value string) {
		list, err := FromEnv([]string{EnvPrefix + "X=" + value})
		if err != nil {
			return
		}
		again, err := FromEnv([]string{EnvPrefix + "X=" + Encode(list)})
		if err != nil {
			t.Fatalf("%s: %v", Encode(list), err)
		}
		if len(again) != len(list) {
			t.Errorf("%d devices became %d", len(list), len(again))
		}
	})
}
