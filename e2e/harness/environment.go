package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/outrigger-hpc/outrigger/e2e/harness/controlplane"
	"github.com/outrigger-hpc/outrigger/e2e/harness/daemon"
)

// patience is the time limit of each wait in a test cluster: long, because a slow machine is
// no fault.
const patience = 3 * time.Minute

// Environment is an etcd and an API server on loopback: no node, and without
// options no scheduler and no built-in controller. It is what tests of a controller need: objects
// can be written and watched, and nothing but the tests' own controllers acts.
type Environment struct {
	Config     *rest.Config // of a user who may do everything
	Kubeconfig string       // a file with the same, for programs

	dir         string
	runs        *daemon.Set
	controllers bool
}

// Option changes an Environment.
type Option func(*Environment)

// WithControllers adds Kubernetes' own controllers and its scheduler, at the
// speed of this machine: Jobs make pods, pods get nodes, what has lost its owner
// goes. Nodes are the caller's to make, and no controller watches their health.
func WithControllers(e *Environment) { e.controllers = true }

// Env starts an Environment; any number can run at the same time. Its programs
// end with Stop, at the latest with the process that called Env.
func Env(ctx context.Context, options ...Option) (*Environment, error) {
	bin, err := Programs(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir, err := os.MkdirTemp("", "outrigger-env-")
	if err != nil {
		return nil, fmt.Errorf("environment: %w", err)
	}
	e := &Environment{dir: dir, runs: daemon.NewSet(dir)}
	for _, o := range options {
		o(e)
	}
	if err := e.start(ctx, bin); err != nil {
		e.halt()
		return nil, fmt.Errorf("environment: %w (its logs are kept in %s)", err, dir)
	}
	return e, nil
}

func (e *Environment) start(ctx context.Context, bin string) error {
	ports, err := FreePorts(3)
	if err != nil {
		return err
	}
	plane := &controlplane.Plane{
		Dir: filepath.Join(e.dir, "plane"), Bin: bin, Services: "10.79.0.0/16",
		Address: net.IPv4(127, 0, 0, 1), Port: ports[0], EtcdPort: ports[1], PeerPort: ports[2],
	}
	if err := plane.Prepare(); err != nil {
		return err
	}
	for _, c := range []daemon.Command{plane.Etcd(), plane.APIServer()} {
		if err := e.runs.Start(c); err != nil {
			return err
		}
	}
	e.Kubeconfig = plane.Kubeconfig(controlplane.Administrator)
	if e.Config, err = clientcmd.BuildConfigFromFlags("", e.Kubeconfig); err != nil {
		return err
	}
	err = controlplane.Ready(ctx, e.Config, func() error {
		return errors.Join(e.runs.Alive(controlplane.Etcd), e.runs.Alive(controlplane.APIServer))
	})
	if err != nil || !e.controllers {
		return err
	}
	for _, c := range unhurried(plane) {
		if err := e.runs.Start(c); err != nil {
			return err
		}
	}
	return nil
}

// unhurried returns the controllers and the scheduler without their own limits of
// calls a second, which would be measured instead of what is asked, and without
// ports, of which two environments would need the same.
func unhurried(plane *controlplane.Plane) []daemon.Command {
	controllers, scheduler := plane.Controllers(), plane.Scheduler()
	controllers.Args = append(controllers.Args, "--controllers=*,-node-lifecycle-controller", "--concurrent-job-syncs=20")
	all := []daemon.Command{controllers, scheduler}
	for i := range all {
		all[i].Args = append(all[i].Args, "--secure-port=0", "--kube-api-qps=2000", "--kube-api-burst=4000")
	}
	return all
}

// Stop ends the environment's programs and removes its files.
func (e *Environment) Stop() error {
	e.halt()
	return os.RemoveAll(e.dir)
}

// halt ends the clients first, then the API server, then etcd, so that none logs errors about
// the others.
func (e *Environment) halt() {
	e.runs.Stop(controlplane.Scheduler)
	e.runs.Stop(controlplane.Controllers)
	e.runs.Stop(controlplane.APIServer)
	e.runs.Stop(controlplane.Etcd)
}
