package node

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func spec(t *testing.T) *Spec {
	t.Helper()
	return &Spec{
		Name: "node1", Dir: t.TempDir(), Bin: "/bin", CNI: "/cni", Sandbox: "outrigger.dev/probe:v1",
		Address: "10.77.0.11/24", DNS: "10.77.0.1", Pods: "10.78.1.0/24", Range: "10.78.0.0/16",
		CA: "/ca.crt", ProxyKubeconfig: "/proxy", Cgroup: "/outrigger-cluster/node1",
		Routes: []Route{{Pods: "10.78.2.0/24", Via: "10.77.0.12"}},
	}
}

func TestSpecIsKept(t *testing.T) {
	s := spec(t)
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	got, err := readSpec(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

// Each program's configuration is valid, and has the node's values in the right fields.
func TestConfigurations(t *testing.T) {
	s := spec(t)
	if err := s.writeConfigs(); err != nil {
		t.Fatal(err)
	}
	kubelet := struct {
		CgroupRoot string   `json:"cgroupRoot"`
		ClusterDNS []string `json:"clusterDNS"`
	}{}
	read(t, s.Path("kubelet.yaml"), yaml.Unmarshal, &kubelet)
	if kubelet.CgroupRoot != s.Cgroup || !cmp.Equal(kubelet.ClusterDNS, []string{s.DNS}) {
		t.Errorf("kubelet: %+v", kubelet)
	}
	proxy := struct {
		ClusterCIDR      string `json:"clusterCIDR"`
		HostnameOverride string `json:"hostnameOverride"`
	}{}
	read(t, s.Path("proxy.yaml"), yaml.Unmarshal, &proxy)
	if proxy.ClusterCIDR != s.Range || proxy.HostnameOverride != s.Name {
		t.Errorf("kube-proxy: %+v", proxy)
	}
	cni := struct {
		Plugins []struct {
			Type string
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}{}
	read(t, s.Path("cni/10-pods.conflist"), unmarshalJSON, &cni)
	if len(cni.Plugins) != 2 || cni.Plugins[0].IPAM.Ranges[0][0].Subnet != s.Pods {
		t.Errorf("CNI: %+v", cni)
	}
}

func unmarshalJSON(text []byte, into any, _ ...yaml.JSONOpt) error { return json.Unmarshal(text, into) }

func read(t *testing.T, name string, unmarshal func([]byte, any, ...yaml.JSONOpt) error, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unmarshal(text, into); err != nil {
		t.Errorf("%s: %v\n%s", name, err, text)
	}
}

func TestStepsOfAPath(t *testing.T) {
	for path, want := range map[string][]string{
		"/outrigger-cluster/node1": {"outrigger-cluster", "node1"},
		"one/":                     {"one"},
		"/":                        nil,
	} {
		if diff := cmp.Diff(want, splitPath(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}
