package keeper

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outrigger-hpc/outrigger/e2e/harness/control"
	"github.com/outrigger-hpc/outrigger/e2e/harness/controlplane"
	"github.com/outrigger-hpc/outrigger/e2e/harness/node"
	"github.com/outrigger-hpc/outrigger/e2e/harness/pid1"
)

// nodePatience is how long a node may take until it answers.
const nodePatience = time.Minute

// NodeCommand is the word after pid1.Argument by which this program becomes a
// node; the node's folder follows.
const NodeCommand = "as-node"

// machine is a running node.
type machine struct {
	first *exec.Cmd     // its first process, which everything of it ends with
	ended chan struct{} // closed when that was waited for
}

// startAll starts every node, after it has made what the nodes share.
func (k *keeper) startAll() error {
	var all errgroup.Group
	machines := make([]*machine, k.layout.Nodes)
	for i := range machines {
		all.Go(func() (err error) {
			machines[i], err = k.boot(i + 1)
			return err
		})
	}
	err := all.Wait()
	for i, m := range machines {
		if m != nil {
			k.nodes[nodeName(i+1)] = m
		}
	}
	return err
}

// boot starts the i-th node and waits until its programs are started.
func (k *keeper) boot(i int) (*machine, error) {
	s := k.layout.node(i, k.plane)
	if err := os.RemoveAll(s.Socket()); err != nil { // of the node's life before
		return nil, fmt.Errorf("node %s: %w", s.Name, err)
	}
	if err := s.Write(); err != nil {
		return nil, err
	}
	if err := node.MakeCgroups(s.Cgroup); err != nil {
		return nil, fmt.Errorf("node %s: %w", s.Name, err)
	}
	m, err := power(s)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", s.Name, err)
	}
	if err := m.answering(s); err != nil {
		return m, err
	}
	if err := connect(s.Name, m.first.Process.Pid); err != nil {
		return m, fmt.Errorf("node %s: %w", s.Name, err)
	}
	return m, control.Ask(s.Socket(), "Control.Join", control.Nothing{}, &control.Nothing{})
}

// power starts the first process of a node.
func power(s *node.Spec) (*machine, error) {
	log, err := os.OpenFile(s.Path("log/node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	m := &machine{first: pid1.Command(NodeCommand, s.Dir), ended: make(chan struct{})}
	m.first.Stdout, m.first.Stderr = log, log
	if err := m.first.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = m.first.Wait() // its log has more to say than its exit status
		close(m.ended)
	}()
	return m, nil
}

// answering waits until the node serves requests.
func (m *machine) answering(s *node.Spec) error {
	for end := time.Now().Add(nodePatience); ; time.Sleep(20 * time.Millisecond) {
		_, err := control.Pid(s.Socket())
		if err == nil {
			return nil
		}
		select {
		case <-m.ended:
			return fmt.Errorf("node %s has ended; its log is %s", s.Name, s.Path("log/node.log"))
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("node %s does not answer: %w", s.Name, err)
		}
	}
}

// lose ends a node and everything on it at once, as a power failure does.
func (m *machine) lose() error {
	if err := m.first.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-m.ended
	return nil
}

// Control has the requests that the keeper serves.
type Control struct {
	mu     sync.Mutex
	keeper *keeper
}

// StopNode ends a node and everything on it at once, as a power failure does.
func (c *Control) StopNode(name string, _ *control.Nothing) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.keeper.nodes[name]
	if m == nil {
		return fmt.Errorf("node %s does not run", name)
	}
	delete(c.keeper.nodes, name)
	if err := m.lose(); err != nil {
		return fmt.Errorf("stop node %s: %w", name, err)
	}
	// Its containers have ended; their cgroups would prevent the next start.
	return node.RemoveCgroups(c.keeper.layout.cgroup()+"/"+name, nodePatience)
}

// StartNode starts a node that StopNode ended, on the disk that it had.
func (c *Control) StartNode(name string, _ *control.Nothing) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeper.nodes[name] != nil {
		return fmt.Errorf("node %s runs already", name)
	}
	for i, known := range c.keeper.layout.Names() {
		if known == name {
			m, err := c.keeper.boot(i + 1)
			if m != nil {
				c.keeper.nodes[name] = m
			}
			return err
		}
	}
	return fmt.Errorf("there is no node %q", name)
}

// StopAPIServer ends the API server; etcd, the other programs of the control plane and the
// nodes go on.
func (c *Control) StopAPIServer(control.Nothing, *control.Nothing) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keeper.runs.Stop(controlplane.APIServer)
	return nil
}

// StartAPIServer starts the API server that StopAPIServer ended.
func (c *Control) StartAPIServer(control.Nothing, *control.Nothing) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keeper.runs.Start(c.keeper.plane.APIServer())
}

// RemoveCgroups removes the cgroups of a cluster that has ended.
func (l *Layout) RemoveCgroups() error { return node.RemoveCgroups(l.cgroup(), nodePatience) }
