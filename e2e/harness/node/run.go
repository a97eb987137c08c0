package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/e2e/harness/control"
	"github.com/outrigger-hpc/outrigger/e2e/harness/daemon"
)

// patience is how long a node's program may take to come up.
const patience = 2 * time.Minute

// containerdSocket is where containerd listens, in the node's own /run.
const containerdSocket = "/run/containerd/containerd.sock"

// Run runs a node: it prepares the node's mounts and devices, and then serves requests until
// ctx ends. The process must be in its own namespaces.
func Run(ctx context.Context, dir string) error {
	s, err := readSpec(dir)
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return fmt.Errorf("node %s: host name: %w", s.Name, err)
	}
	if err := furnish(s); err != nil {
		return fmt.Errorf("node %s: %w", s.Name, err)
	}
	if err := s.writeConfigs(); err != nil {
		return fmt.Errorf("node %s: %w", s.Name, err)
	}
	requests, err := control.Serve(s.Socket(), &Control{spec: s, runs: daemon.NewSet(s.Path("log"))})
	if err != nil {
		return fmt.Errorf("node %s: %w", s.Name, err)
	}
	defer requests.Close()
	<-ctx.Done()
	return nil
}

// writeConfigs renders each program's configuration from the Spec.
func (s *Spec) writeConfigs() error {
	proxy, err := ProxyConfig(s.Name, s.ProxyKubeconfig, s.Range)
	if err != nil {
		return err
	}
	files := map[string][]byte{"proxy.yaml": proxy}
	for _, name := range []string{"containerd.toml", "kubelet.yaml", "cni.conflist"} {
		if files[name], err = render(name, s); err != nil {
			return err
		}
	}
	files[filepath.Join("cni", "10-pods.conflist")] = files["cni.conflist"]
	delete(files, "cni.conflist")
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(s.Path(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(s.Path(name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Control has the requests that a node serves.
type Control struct {
	spec *Spec
	runs *daemon.Set
}

// Join connects the node to the others and starts its programs. Its network
// device must be there.
func (c *Control) Join(control.Nothing, *control.Nothing) error {
	if err := join(c.spec); err != nil {
		return err
	}
	if err := c.start(Containerd); err != nil {
		return err
	}
	for _, archive := range c.spec.Images {
		if err := c.load(archive); err != nil {
			return err
		}
	}
	return errors.Join(c.start(Kubelet), c.start(Proxy))
}

// Start starts one of the node's programs.
func (c *Control) Start(name string, _ *control.Nothing) error { return c.start(name) }

// Stop ends one of the node's programs; pods stay, as they do on a machine.
func (c *Control) Stop(name string, _ *control.Nothing) error {
	c.runs.Stop(name)
	return nil
}

// Load imports an archive of images.
func (c *Control) Load(archive string, _ *control.Nothing) error { return c.load(archive) }

// Running lists the node's programs that run.
func (c *Control) Running(_ control.Nothing, names *[]string) error {
	*names = c.runs.Running()
	return nil
}

func (c *Control) start(name string) error {
	commands := map[string][]string{
		Containerd: {"--config=" + c.spec.Path("containerd.toml")},
		Kubelet: {
			"--config=" + c.spec.Path("kubelet.yaml"), "--kubeconfig=" + c.spec.Kubeconfig,
			"--hostname-override=" + c.spec.Name, "--node-ip=" + addressOf(c.spec.Address), "--v=2",
		},
		Proxy: {"--config=" + c.spec.Path("proxy.yaml")},
	}
	args, known := commands[name]
	if !known {
		return fmt.Errorf("node %s has no program %q", c.spec.Name, name)
	}
	command := daemon.Command{
		Name: name,
		Args: append([]string{filepath.Join(c.spec.Bin, name)}, args...),
		// containerd finds its shim by PATH.
		Env: []string{"PATH=" + c.spec.Bin + ":" + os.Getenv("PATH")},
		// The kubelet ends when containerd is not there, or listens and is not
		// ready yet, and leaves it to its service manager to try again.
		Restart: name != Containerd,
	}
	if err := c.runs.Start(command); err != nil {
		return fmt.Errorf("node %s: %w", c.spec.Name, err)
	}
	if name == Containerd {
		return c.answering(containerdSocket)
	}
	return nil
}

// answering waits until containerd listens, because the kubelet ends otherwise.
func (c *Control) answering(socket string) error {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return conn.Close()
		}
		if dead := c.runs.Alive(Containerd); dead != nil {
			return fmt.Errorf("node %s: %w", c.spec.Name, dead)
		}
		if time.Now().After(end) {
			return fmt.Errorf("node %s: containerd does not listen; its log is %s: %w", c.spec.Name, c.runs.Log(Containerd), err)
		}
	}
}

func (c *Control) load(archive string) error {
	ctr := exec.Command(filepath.Join(c.spec.Bin, "ctr"), "--namespace=k8s.io", "images", "import", archive)
	if out, err := ctr.CombinedOutput(); err != nil {
		return fmt.Errorf("node %s: import %s: %w: %s", c.spec.Name, archive, err, out)
	}
	return nil
}

// addressOf returns a CIDR's address.
func addressOf(cidr string) string {
	ip, _, err := net.ParseCIDR(cidr)
	if err != nil {
		return cidr // the kubelet will say what is wrong with it
	}
	return ip.String()
}
