// Command kube is etcd and the components of Kubernetes in one program, as hyperkube was. The
// components share most of their code, so that one program is built and linked in a fraction of
// the time that seven programs take. The name of the link by which it is called (kubelet,
// kubectl, ...) selects the component; if that is not a component's name, the first argument does.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics of every component
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components are made only when they are called: each registers its metrics and
// flags when it is made.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return of(kubelet.NewKubeletCommand) },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

// of makes a component by its constructor, which takes a context in some versions of Kubernetes
// and no argument in the others.
func of(constructor any) *cobra.Command {
	switch create := constructor.(type) {
	case func() *cobra.Command:
		return create()
	case func(context.Context) *cobra.Command:
		return create(context.Background())
	}
	panic(fmt.Sprintf("kube: a component is made by %T", constructor))
}

const etcd = "etcd"

func main() {
	name := filepath.Base(os.Args[0])
	if !known(name) && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	switch {
	case name == etcd:
		etcdmain.Main(append([]string{etcd}, os.Args[1:]...))
	case known(name):
		os.Exit(cli.Run(components[name]()))
	default:
		names := append(slices.Sorted(maps.Keys(components)), etcd)
		fmt.Fprintf(os.Stderr, "kube: %q is no component; call this program by a link named %s, or name one as its first argument\n",
			name, strings.Join(names, ", "))
		os.Exit(2)
	}
}

func known(name string) bool { return name == etcd || components[name] != nil }
