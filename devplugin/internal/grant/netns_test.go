//go:build offload

package grant

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// namespace is a network namespace, with a thread in it.
type namespace struct {
	file   *os.File
	thread int
	h      *netlink.Handle
	work   chan func()
	over   chan struct{}
}

// newNamespace makes a network namespace, which ends with the test. It needs root.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	return namespaceBy(t, func() error { return unix.Unshare(unix.CLONE_NEWNET) })
}

// namespaceBy returns the network namespace that a thread is in after enter.
func namespaceBy(t *testing.T, enter func() error) *namespace {
	t.Helper()
	n := &namespace{work: make(chan func()), over: make(chan struct{})}
	made := make(chan error)
	onOwnThread(func() {
		defer close(n.over)
		n.thread = unix.Gettid()
		err := enter()
		if err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
		for do := range n.work {
			do()
		}
	})
	if err := <-made; err != nil {
		t.Fatalf("a network namespace: %v (it needs root)", err)
	}
	t.Cleanup(func() {
		close(n.work)
		<-n.over
		_ = n.file.Close() // the namespace ends in any case
	})
	n.in(func() {
		var err error
		if n.h, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(n.h.Close)
	return n
}

// in calls do on the namespace's thread.
func (n *namespace) in(do func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); do() }
	<-done
}

// link adds an interface that is up.
func (n *namespace) link(t *testing.T, l netlink.Link) {
	t.Helper()
	var err error
	n.in(func() { err = n.h.LinkAdd(l) }) // a TUN device is made in the namespace of the thread
	if err = errors.Join(err, n.h.LinkSetUp(l)); err != nil {
		t.Fatalf("%s: %v", l.Attrs().Name, err)
	}
}

// veth joins two namespaces. The interface of a is called name, the other one peer.
func veth(t *testing.T, a *namespace, name string, b *namespace) (of, peer *net.Interface) {
	t.Helper()
	v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 9000}, PeerName: "peer", PeerMTU: 9000}
	a.link(t, v)
	p, err := a.h.LinkByName("peer")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.h.LinkSetNsFd(p, int(b.file.Fd())); err != nil {
		t.Fatal(err)
	}
	if p, err = b.h.LinkByName("peer"); err == nil {
		err = b.h.LinkSetUp(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.in(func() { of, err = net.InterfaceByName(name) })
	if err != nil {
		t.Fatal(err)
	}
	b.in(func() { peer, err = net.InterfaceByName("peer") })
	if err != nil {
		t.Fatal(err)
	}
	return of, peer
}

// route adds a default route over an interface.
func (n *namespace) route(t *testing.T, name, address string, metric int) {
	t.Helper()
	l, err := n.h.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(address)
	if err == nil {
		err = n.h.AddrAdd(l, a)
	}
	if err == nil {
		bits := 8 * len(a.IP)
		err = n.h.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}, Priority: metric})
	}
	if err != nil {
		t.Fatalf("a default route over %s: %v", name, err)
	}
}

// child is a process of this test's program that answers each line with a line.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.Writer
	says *bufio.Scanner
}

// envRole is what a child is: agent or holder.
const envRole, envSocket, envInterface = "GRANT_TEST_ROLE", "GRANT_TEST_SOCKET", "GRANT_TEST_INTERFACE"

func init() {
	roles := map[string]func() error{"agent": beAgent, "holder": beHolder}
	if be := roles[os.Getenv(envRole)]; be != nil {
		if err := be(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// start starts a child in a namespace, with these capabilities at most and without new
// privileges. The namespace's thread keeps its own capabilities.
func start(t *testing.T, in *namespace, caps []int, attr *syscall.SysProcAttr, files []*os.File, env ...string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.CommandContext(t.Context(), "/proc/self/exe")}
	c.cmd.Env, c.cmd.Stderr, c.cmd.ExtraFiles = env, os.Stderr, files
	c.cmd.SysProcAttr = attr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.says = stdin, bufio.NewScanner(stdout)
	in.in(func() {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		for i := range unix.CAP_LAST_CAP + 1 {
			if !slices.Contains(caps, i) {
				err = errors.Join(err, unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(i), 0, 0, 0))
			}
		}
		err = errors.Join(err, c.cmd.Start())
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // ends the child
		_ = c.cmd.Wait()  // killed or not
	})
	return c
}

// ask sends a line and returns the answer.
func (c *child) ask(format string, args ...any) string {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
	if !c.says.Scan() {
		c.t.Fatalf("no answer to "+format, args...)
	}
	return c.says.Text()
}

// want fails the test unless the answer to a line contains a text.
func (c *child) want(text, format string, args ...any) {
	c.t.Helper()
	if got := c.ask(format, args...); !strings.Contains(got, text) {
		c.t.Errorf("%s: %q, want %q", fmt.Sprintf(format, args...), got, text)
	}
}

// beAgent is a child that runs the agent. It takes each caller for a container with a device of
// a pool for the interface of its environment; none: for a container without such a device.
func beAgent() error {
	sockets, err := NewPacketSockets("/proc")
	if err != nil {
		return err
	}
	who := identifierFunc(func(_ context.Context, pid int) (*Caller, error) {
		c := &Caller{PID: pid, Namespace: "ns", Pod: "job-0", PodUID: fmt.Sprint(pid), Container: "outrigger", Devices: 1}
		if name := os.Getenv(envInterface); name != "none" {
			c.Ether = []EtherPool{{Resource: "outrigger.dev/ether", Interface: name}}
		}
		return c, nil
	})
	a, err := Listen(Config{Socket: os.Getenv(envSocket), Who: who, Sockets: sockets, Log: logTo(os.Stderr)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			_, _ = fmt.Fprintln(os.Stdout, SocketProblems(), a.Connections()) // the test waits for it
		}
	}()
	return a.Serve(ctx)
}

// newAgent starts an agent with the capabilities of the chart's, in a namespace.
func newAgent(t *testing.T, in *namespace, iface string) (socket string) {
	t.Helper()
	return newAgentWith(t, in, iface, "[] 0", unix.CAP_SYS_RESOURCE, unix.CAP_SYS_ADMIN, unix.CAP_NET_RAW)
}

// newAgentWith starts an agent with these capabilities, and checks what it says of them.
func newAgentWith(t *testing.T, in *namespace, iface, says string, caps ...int) (socket string) {
	t.Helper()
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the holder is another user
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "run", "grant.sock")
	c := start(t, in, caps, nil, nil,
		envRole+"=agent", envSocket+"="+socket, envInterface+"="+iface)
	c.want(says, "are you ready?")
	return socket
}

// newHolder starts a sidecar in a namespace: user 65532, without capabilities, also in its
// bounding set, and without new privileges.
func newHolder(t *testing.T, in *namespace, socket string, files ...*os.File) *child {
	t.Helper()
	user := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	c := start(t, in, nil, user, files, envRole+"=holder", envSocket+"="+socket)
	c.want("Uid: 65532 65532 65532 65532, CapInh: 0000000000000000, CapPrm: 0000000000000000, CapEff: 0000000000000000, CapBnd: 0000000000000000, CapAmb: 0000000000000000, NoNewPrivs: 1", "status")
	return c
}

// wire is a socket that sees and sends any frame on an interface of a namespace.
type wire struct {
	t  *testing.T
	fd int
	of *net.Interface
}

func newWire(t *testing.T, n *namespace, of *net.Interface) *wire {
	t.Helper()
	w := &wire{t: t, of: of}
	var err error
	n.in(func() {
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		err = errors.Join(
			unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}),
			unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: of.Index}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(w.fd) })
	return w
}

// send sends a frame, from any source.
func (w *wire) send(to, from net.HardwareAddr, kind uint16, payload string) {
	w.t.Helper()
	frame := slices.Concat(to, from, []byte{byte(kind >> 8), byte(kind)}, []byte(payload))
	if err := unix.Send(w.fd, frame, 0); err != nil {
		w.t.Fatal(err)
	}
}

// next returns the next frame whose payload begins with a text, as source, ethertype and payload.
// The kernels of the namespaces send frames of their own.
func (w *wire) next(prefix string) string {
	w.t.Helper()
	buf := make([]byte, 1<<16)
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		n, _, err := unix.Recvfrom(w.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			w.t.Fatalf("waiting for %s: %v", prefix, err)
		}
		if n > 14 && strings.HasPrefix(string(buf[14:n]), prefix) {
			return fmt.Sprintf("%s %02x%02x %s", net.HardwareAddr(buf[6:12]), buf[12], buf[13], buf[14:n])
		}
	}
	w.t.Fatalf("no frame that begins with %s", prefix)
	return ""
}

// TestEtherInPod: a process without any privilege gets a packet socket of its namespace from an
// agent with the capabilities that the chart gives, and exchanges frames through a ring.
func TestEtherInPod(t *testing.T) {
	pod, peer, node := newNamespace(t), newNamespace(t), newNamespace(t)
	eth, other := veth(t, pod, "eth0", peer)
	h := newHolder(t, pod, newAgent(t, node, ""))
	h.want("operation not permitted", "own")
	h.want(fmt.Sprintf("eth0 %d %s 9000", eth.Index, eth.HardwareAddr), "ether")
	h.want("ok", "ring")
	w := newWire(t, peer, other)
	h.want("ok", "send %s %d %#x hello from 65532", other.HardwareAddr, eth.Index, grant.EtherType)
	if got, want := w.next("hello"), eth.HardwareAddr.String()+" 88b5 hello from 65532"; got != want {
		t.Errorf("%q on the wire, want %q", got, want)
	}
	w.send(eth.HardwareAddr, other.HardwareAddr, grant.EtherType, "hello holder")
	h.want(fmt.Sprintf("88b5 from %s: hello holder", other.HardwareAddr), "receive")
	large := strings.Repeat("x", 9000)
	w.send(eth.HardwareAddr, other.HardwareAddr, grant.EtherType, large)
	h.want(large, "receive")
	h.want("message too long", "send %s %d %#x %s", other.HardwareAddr, eth.Index, grant.EtherType, large+"y")
}

// TestEtherFilter: whatever the holder does with its socket, it receives only frames of the
// ethertype to the address of an interface of its own namespace.
func TestEtherFilter(t *testing.T) {
	pod, peer, node := newNamespace(t), newNamespace(t), newNamespace(t)
	eth, other := veth(t, pod, "eth0", peer)
	second, third := veth(t, pod, "net1", node)
	h := newHolder(t, pod, newAgent(t, node, "eth0"))
	h.want("eth0", "ether")
	h.want("ok", "ring")
	w, w2 := newWire(t, peer, other), newWire(t, node, third)
	foreign, broadcast := net.HardwareAddr{2, 0, 0, 0, 0, 9}, net.HardwareAddr{255, 255, 255, 255, 255, 255}
	only := func(what string, marked *wire, to net.HardwareAddr) {
		t.Helper()
		for _, side := range []*wire{w, w2} {
			own := eth.HardwareAddr
			if side == w2 {
				own = second.HardwareAddr
			}
			for _, kind := range []uint16{unix.ETH_P_IP, unix.ETH_P_ARP, unix.ETH_P_IPV6, 0x88b6, unix.ETH_P_8021Q} {
				side.send(own, side.of.HardwareAddr, kind, "another protocol "+what)
			}
			side.send(foreign, side.of.HardwareAddr, grant.EtherType, "to another address "+what)
			side.send(broadcast, side.of.HardwareAddr, grant.EtherType, "to all "+what)
		}
		h.want("ok", "send %s %d %#x own frame %s", other.HardwareAddr, eth.Index, grant.EtherType, what)
		marked.send(to, marked.of.HardwareAddr, grant.EtherType, "marked "+what)
		h.want("marked "+what, "receive")
	}
	only("as given", w, eth.HardwareAddr)
	for _, option := range []string{"detach", "attach", "attach-bpf", "unlock"} {
		h.want("operation not permitted", "%s", option)
	}
	only("after the options", w, eth.HardwareAddr)
	h.want("ok", "outgoing")
	only("with outgoing frames", w, eth.HardwareAddr)
	h.want("ok", "promiscuous %d", eth.Index)
	only("promiscuous", w, eth.HardwareAddr)
	h.want("ok", "bind %d %#x", eth.Index, unix.ETH_P_ALL)
	only("with all protocols", w, eth.HardwareAddr)
	h.want("ok", "bind %d %#x", second.Index, unix.ETH_P_ALL)
	only("on another interface", w2, second.HardwareAddr)
	h.want("ok", "bind 0 %#x", unix.ETH_P_ALL)
	only("on all interfaces", w2, second.HardwareAddr)
	h.want("ok", "bind %d %#x", eth.Index, unix.ETH_P_IP)
	for _, kind := range []uint16{unix.ETH_P_IP, grant.EtherType} {
		w.send(eth.HardwareAddr, other.HardwareAddr, kind, "bound to another protocol")
	}
	h.want("ok", "bind %d %#x", eth.Index, grant.EtherType)
	only("bound again", w, eth.HardwareAddr)
}

// TestEtherSource: the holder can send frames of any ethertype, from each interface of its
// namespace, and none with another source address than that of the interface.
func TestEtherSource(t *testing.T) {
	pod, peer, node := newNamespace(t), newNamespace(t), newNamespace(t)
	eth, other := veth(t, pod, "eth0", peer)
	second, third := veth(t, pod, "net1", node)
	h := newHolder(t, pod, newAgent(t, node, "eth0"))
	h.want("eth0", "ether")
	w, w2 := newWire(t, peer, other), newWire(t, node, third)
	own := eth.HardwareAddr.String()
	h.want("ok", "send %s %d 0x0800 a made packet", other.HardwareAddr, eth.Index)
	if got := w.next("a made packet"); got != own+" 0800 a made packet" {
		t.Error(got)
	}
	h.want("ok", "send %s %d 0x88b5 from the second", third.HardwareAddr, second.Index)
	if got := w2.next("from the second"); got != second.HardwareAddr.String()+" 88b5 from the second" {
		t.Error(got)
	}
	// The address of a frame has room for two bytes more than an Ethernet address.
	h.want("ok", "send %s:02:09 %d 0x88b5 a long address", other.HardwareAddr, eth.Index)
	if got := w.next("a long address"); got != own+" 88b5 a long address" {
		t.Error(got)
	}
	h.want("invalid argument", "vnet-header") // a header that would make the payload a whole frame
	h.want("operation not permitted", "set-address eth0")
	h.want("ok", "output-ring %s %d 0x88b5 through the ring", other.HardwareAddr, eth.Index)
	if got := w.next("through the ring"); got != own+" 88b5 through the ring" {
		t.Error(got)
	}
	h.want("operation not permitted", "force-receive-buffer")
}

// TestEtherWrongDescriptors: what is not the network namespace of the caller is refused, and the
// connection and the agent serve the next request.
func TestEtherWrongDescriptors(t *testing.T) {
	pod, peer, node := newNamespace(t), newNamespace(t), newNamespace(t)
	veth(t, pod, "eth0", peer)
	socket := newAgent(t, node, "")
	for name, cause := range map[string]string{
		"/proc/self/exe":    "is not a network namespace",
		"/proc/self/ns/pid": "is not a network namespace",
		"/dev/null":         "is not a network namespace",
		"/proc/self/fd/3":   "is the node's or the agent's own",
		"/proc/self/fd/4":   "is not that of the calling process",
	} {
		h := newHolder(t, pod, socket, node.file, peer.file, pod.file)
		h.want(cause, "ether-with %s", name)
		h.want("eth0", "ether-with /proc/self/fd/5") // the caller's namespace by another descriptor
		h.want("eth0", "ether")
	}
}

// TestEtherInUserNamespace: a pod may have a user namespace, to which its network namespace
// belongs (hostUsers: false).
func TestEtherInUserNamespace(t *testing.T) {
	pod, peer, node := newNamespace(t), newNamespace(t), newNamespace(t)
	ids := []syscall.SysProcIDMap{{ContainerID: 65532, HostID: 100_000, Size: 1}}
	h := start(t, pod, nil, &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{Uid: 65532, Gid: 65532, NoSetGroups: true},
	}, nil, envRole+"=holder", envSocket+"="+newAgent(t, node, ""))
	h.want("CapEff: 0000000000000000", "status")
	h.want("none of the pod's interfaces (lo) is an Ethernet interface", "ether")
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", h.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	its := namespaceBy(t, func() error { return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET) })
	eth, other := veth(t, its, "eth0", peer)
	h.want("eth0", "ether")
	h.want("ok", "ring")
	newWire(t, peer, other).send(eth.HardwareAddr, other.HardwareAddr, grant.EtherType, "hello holder")
	h.want("hello holder", "receive")
}

// TestEtherWithoutDevice: a container without a device of the kind ether gets no socket.
func TestEtherWithoutDevice(t *testing.T) {
	pod, peer, node := newNamespace(t), newNamespace(t), newNamespace(t)
	veth(t, pod, "eth0", peer)
	h := newHolder(t, pod, newAgent(t, node, "none"))
	h.want("not allocated a device of a pool of the kind ether", "ether")
}

// TestEtherWithoutCapabilities: an agent without the capabilities says which one is missing, and
// refuses with what to do.
func TestEtherWithoutCapabilities(t *testing.T) {
	const needs = "operation not permitted; the agent needs CAP_SYS_ADMIN and CAP_NET_RAW"
	for _, c := range []struct {
		says, cause string
		caps        []int
	}{
		{"[the agent has no CAP_SYS_ADMIN and no CAP_NET_RAW", "entering the caller's network namespace: " + needs, []int{unix.CAP_SYS_RESOURCE}},
		{"[the agent has no CAP_SYS_ADMIN (", "entering the caller's network namespace: " + needs, []int{unix.CAP_NET_RAW}},
		{"[the agent has no CAP_NET_RAW (", "making a packet socket: " + needs, []int{unix.CAP_SYS_ADMIN}},
	} {
		pod, peer, node := newNamespace(t), newNamespace(t), newNamespace(t)
		veth(t, pod, "eth0", peer)
		newHolder(t, pod, newAgentWith(t, node, "", c.says, c.caps...)).want(c.cause, "ether")
	}
}

// TestEtherOfTheNode: a socket in the namespace of process 1 is refused, also if the agent and
// the caller are in others or in the same one.
func TestEtherOfTheNode(t *testing.T) {
	pod, node := newNamespace(t), newNamespace(t)
	proc := t.TempDir()
	for pid, thread := range map[int]int{1: node.thread, 100: pod.thread, 101: node.thread} {
		if err := os.Symlink(fmt.Sprintf("/proc/%d", thread), filepath.Join(proc, fmt.Sprint(pid))); err != nil {
			t.Fatal(err)
		}
	}
	check := func(n *namespace, caller int) (err error) {
		n.in(func() {
			fd, socketErr := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if socketErr != nil {
				err = socketErr
				return
			}
			err = checkPlace(proc, fd, caller)
			_ = unix.Close(fd) // nothing was sent
		})
		return err
	}
	if err := check(pod, 100); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		in     *namespace
		caller int
		cause  string
	}{{node, 101, "hostNetwork"}, {node, 100, "hostNetwork"}, {pod, 101, "not that of the calling process"}, {pod, 102, "no such file"}} {
		if err := check(c.in, c.caller); err == nil || !strings.Contains(err.Error(), c.cause) {
			t.Errorf("caller %d: %v, want %q", c.caller, err, c.cause)
		}
	}
}

// TestChooseInterface: the interface of the pool, or else that of the default route, or else the
// only one; any other is refused with what to do.
func TestChooseInterface(t *testing.T) {
	pair := func(name string) netlink.Link {
		return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}
	}
	tun := func() netlink.Link {
		return &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tun0"}, Mode: netlink.TUNTAP_MODE_TUN}
	}
	none := func(*namespace) {}
	for what, c := range map[string]struct {
		make        func(*namespace)
		name, want  string
		becauseOnly bool // want is a part of the error
	}{
		"nothing":      {none, "", "the pod needs a network", true},
		"missing":      {none, "net1", "the pod has no interface net1, but lo", true},
		"loopback":     {func(n *namespace) { n.up(t, "lo") }, "lo", "set interface of the pool", true},
		"down":         {func(n *namespace) { n.link(t, pair("eth0")); n.down(t, "eth0") }, "eth0", "eth0 is down", true},
		"not Ethernet": {func(n *namespace) { n.link(t, tun()) }, "tun0", "tun0 is of the hardware type 65534 and not Ethernet", true},
		"only one":     {func(n *namespace) { n.link(t, pair("eth0")); n.down(t, "eth0p"); n.link(t, tun()); n.up(t, "lo") }, "", "eth0", false},
		"two":          {func(n *namespace) { n.link(t, pair("a")); n.link(t, pair("b")); n.up(t, "ap"); n.up(t, "bp") }, "", "are both up; set interface", true},
		"two, by name": {func(n *namespace) { n.link(t, pair("a")); n.link(t, pair("b")) }, "b", "b", false},
		"default": {func(n *namespace) {
			n.link(t, pair("a"))
			n.link(t, pair("b"))
			n.route(t, "a", "10.0.0.1/24", 200)
			n.route(t, "b", "10.0.1.1/24", 100)
		}, "", "b", false},
		"default, not Ethernet": {func(n *namespace) { n.link(t, pair("a")); n.link(t, tun()); n.route(t, "tun0", "10.0.0.1/24", 1) }, "", "tun0 is of the hardware type", true},
		"default of IPv6":       {func(n *namespace) { n.link(t, pair("a")); n.link(t, pair("b")); n.route(t, "b", "fd00::1/64", 7) }, "", "b", false},
	} {
		t.Run(what, func(t *testing.T) {
			n := newNamespace(t)
			c.make(n)
			var i *netInterface
			var err error
			n.in(func() {
				fd, socketErr := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				if socketErr != nil {
					err = socketErr
					return
				}
				i, err = chooseInterface(fd, c.name)
				_ = unix.Close(fd) // nothing was sent
			})
			switch {
			case c.becauseOnly:
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, %v, want %q", i, err, c.want)
				}
			case err != nil || i.name != c.want || i.mtu != 1500 || i.index == 0:
				t.Errorf("%+v, %v, want %s", i, err, c.want)
			}
		})
	}
}

// up and down change an interface.
func (n *namespace) up(t *testing.T, name string) {
	t.Helper()
	l, err := n.h.LinkByName(name)
	if err == nil {
		err = n.h.LinkSetUp(l)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func (n *namespace) down(t *testing.T, name string) {
	t.Helper()
	l, err := n.h.LinkByName(name)
	if err == nil {
		err = n.h.LinkSetDown(l)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestNoThreadStays: after sockets were made, no thread of the agent is in another namespace.
func TestNoThreadStays(t *testing.T) {
	pod, peer := newNamespace(t), newNamespace(t)
	veth(t, pod, "eth0", peer)
	p, err := NewPacketSockets("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		s, err := p.Make(t.Context(), SocketRequest{Namespace: pod.file, PID: pod.thread})
		if err != nil {
			t.Fatal(err)
		}
		if s.Interface != "eth0" {
			t.Errorf("%+v", s)
		}
		_ = s.File.Close() // nothing was sent
	}
	deadline := time.Now().Add(time.Minute)
	for {
		left := 0
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			f, err := os.Open(filepath.Join("/proc/self/task", thread.Name(), "ns/net"))
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue // it has ended
			}
			if err != nil {
				t.Fatal(err)
			}
			if of, err := identify(int(f.Fd())); err == nil && of != p.own {
				left++
			}
			_ = f.Close() // it was only looked at
		}
		if left == 2 { // those of the test's namespaces
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d threads are in other namespaces", left)
		}
		runtime.Gosched()
	}
}
