package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/devplugin/internal/grant"
)

// etherState is the state that the agent reports of packet sockets in this process.
func etherState() string {
	if problems := grant.SocketProblems(); len(problems) > 0 {
		return problems[0]
	}
	return "healthy"
}

// TestInventoryEther: packet sockets are in the inventory if a pool offers them, also on a node
// without any device, with what prevents them.
func TestInventoryEther(t *testing.T) {
	config := write(t, "pools: [{kind: ether}, {kind: ether, interface: net1, resource: example.com/net1}]")
	out, err := command(t, "inventory", "--root", t.TempDir(), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ether default packet sockets - - outrigger.dev/ether " + etherState(), "ether-net1 net1 packet sockets - - example.com/net1 " + etherState()} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestAgentEther: the agent offers packet sockets while it may make some, and writes no
// description of them for a container runtime.
func TestAgentEther(t *testing.T) {
	o := agentOptions(t, t.TempDir())
	o.config = write(t, "pools: [{kind: ether, shares: 4}]")
	a, err := newAgent(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.run(ctx) }()
	healthy := "0"
	if etherState() == "healthy" {
		healthy = "1"
	}
	await(t, a, `device_healthy{device="ether",name="default",numa="-",resource="outrigger.dev/ether"} `+healthy)
	if n := len(a.ledger.Units("outrigger.dev/ether")); n != 4 {
		t.Errorf("%d units", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(o.cdi); err == nil && len(files) > 0 {
		t.Errorf("descriptions %v", files)
	}
}

// TestEtherNeedsTheSocket: without a socket for requests no container can get a packet socket.
func TestEtherNeedsTheSocket(t *testing.T) {
	o := agentOptions(t, t.TempDir())
	o.config, o.grantSocket = write(t, "pools: [{kind: ether}]"), ""
	a, err := newAgent(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.kubelet.Close() }() // no request was sent
	a.refresh()
	list := a.ledger.Devices("outrigger.dev/ether")
	if len(list) != 1 || !strings.Contains(strings.Join(list[0].Problems, "; "), "the agent has no --grant-socket") {
		t.Errorf("%+v", list)
	}
}
