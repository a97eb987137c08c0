package main

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/api/grant"
)

// TestPacketSocket checks that a sidecar asks for a packet socket only if its container holds
// a device for that, and says why it has none.
func TestPacketSocket(t *testing.T) {
	var asked atomic.Int32
	d := &daemon{o: &options{}, start: newStart(slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler)}
	d.o.grantSocket = agentAt(t, func(m *grant.Message) *grant.Message {
		asked.Add(1)
		return &grant.Message{Version: grant.Version, Op: m.Op, Error: "the pod has no interface net1"}
	})
	if raw, err := d.packetSocket(t.Context()); raw != nil || err != nil || asked.Load() != 0 {
		t.Errorf("without a device: %v, %v, asked %d times", raw, err, asked.Load())
	}
	t.Setenv(devices.Env("outrigger.dev/ether"), devices.Encode([]devices.Device{{Kind: devices.KindEther, Name: "net1", NUMA: -1}}))
	if raw, err := d.packetSocket(t.Context()); raw != nil || err == nil || !strings.Contains(err.Error(), "no interface net1") || asked.Load() != 1 {
		t.Errorf("refused: %v, %v, asked %d times", raw, err, asked.Load())
	}
	d.o.grantSocket = ""
	if _, err := d.packetSocket(t.Context()); err == nil || !strings.Contains(err.Error(), "no agent's socket") {
		t.Errorf("without an agent: %v", err)
	}
}
