// Package node is what runs inside one node of the test cluster: a node is a
// set of namespaces (processes, mounts, network, host name) in which containerd,
// kubelet and kube-proxy run as they would on a machine of their own.
package node

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

// Names of a node's programs.
const (
	Containerd = "containerd"
	Kubelet    = "kubelet"
	Proxy      = "kube-proxy"
)

// Spec is the configuration of a node. The keeper writes it into Dir, where Run reads it.
type Spec struct {
	Name            string
	Dir             string   // its files; gone with the cluster
	Bin             string   // the programs, as hack/kube/build makes them
	CNI             string   // the folder of the CNI plugins
	Sandbox         string   // the image that holds a pod's namespaces
	Images          []string // archives to import before the kubelet starts
	Address         string   // on the nodes' network, CIDR
	Gateway         string   // the control plane's address
	DNS             string   // the cluster's name server
	Pods            string   // this node's pod addresses, CIDR
	Range           string   // all nodes' pod addresses, CIDR
	Routes          []Route  // to the other nodes' pods
	CA              string   // file: who signs API clients
	Kubeconfig      string   // file: the kubelet's
	ProxyKubeconfig string   // file: kube-proxy's
	Cgroup          string   // under which this node's pods are, in every hierarchy
}

// Route is the way to the pods of another node.
type Route struct{ Pods, Via string }

// Path returns a file of this node.
func (s *Spec) Path(name string) string { return filepath.Join(s.Dir, name) }

// Socket returns the path of the socket on which the node serves requests; see Control.
func (s *Spec) Socket() string { return s.Path("control.sock") }

// specFile is the Spec in its folder.
const specFile = "node.json"

// Write puts the Spec where Run reads it.
func (s *Spec) Write() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("node %s: %w", s.Name, err)
	}
	if err := os.MkdirAll(s.Path("log"), 0o755); err != nil {
		return fmt.Errorf("node %s: %w", s.Name, err)
	}
	return os.WriteFile(s.Path(specFile), text, 0o644)
}

func readSpec(dir string) (*Spec, error) {
	text, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	s := &Spec{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("node: %s: %w", specFile, err)
	}
	return s, nil
}

//go:embed config
var templates embed.FS

// ProxyConfig returns kube-proxy's configuration; the control plane runs one too, so
// that the API server reaches Services.
func ProxyConfig(name, kubeconfig, podRange string) ([]byte, error) {
	return render("proxy.yaml", struct{ Name, Kubeconfig, Range string }{name, kubeconfig, podRange})
}

func render(name string, values any) ([]byte, error) {
	parsed, err := template.ParseFS(templates, "config/"+name)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	var text bytes.Buffer
	if err := parsed.Option("missingkey=error").Execute(&text, values); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	return text.Bytes(), nil
}
