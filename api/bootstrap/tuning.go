package bootstrap

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// Tuning overrides decisions of the engine. A zero value leaves the decision to the engine.
type Tuning struct {
	EagerBytes    int64    `json:"eagerBytes,omitempty"`    // largest eager message, at most 64 KiB
	FragmentBytes int64    `json:"fragmentBytes,omitempty"` // payload of one data frame, at most 1 MiB
	CreditBytes   int64    `json:"creditBytes,omitempty"`   // eager bytes in flight between two sidecars
	Heartbeat     Duration `json:"heartbeat,omitempty"`
	DeadAfter     Duration `json:"deadAfter,omitempty"`
	StartWithin   Duration `json:"startWithin,omitempty"` // how long a peer may take to be reached for the first time; default 10 min
	Transport     string   `json:"transport,omitempty"`   // auto; tcp; ether (TransportEther); rdma, if the pod has a device; or node (TransportNode)
	InOrder       bool     `json:"inOrder,omitempty"`     // the network and the devices place RDMA writes in order, although the devices do not report it
	Require       Names    `json:"require,omitempty"`     // transports that data between pods may use; a sidecar that can use none of them does not start
	Channel       string   `json:"channel,omitempty"`     // eager channel: piggyback, basic, pipeline or zerocopy
	Rendezvous    string   `json:"rendezvous,omitempty"`  // auto, getcqe, get, put, putnr, rput or stream
	LargePath     string   `json:"largePath,omitempty"`   // way of large messages of the transport ether: tcp, pull or auto (LargeAuto); default tcp, or pull if Rendezvous is get or getcqe
	Reuse         string   `json:"reuse,omitempty"`       // reuse of registered source buffers, if links register memory: auto, off or always
	Receives      string   `json:"receives,omitempty"`    // receive queues of RDMA connections: auto, own or shared
	Wait          string   `json:"wait,omitempty"`        // poll, yield or block
	Helpers       int      `json:"helpers,omitempty"`     // threads of a sidecar that copy large messages, at most HelpersMax; 0: one if there is a processor for it; -1: none
	Exposure      string   `json:"exposure,omitempty"`    // memory that ranks register themselves with an RDMA device: denied or allowed; default denied
	Encrypt       string   `json:"encrypt,omitempty"`     // encryption of data between sidecars: none or tls; default none

	Collectives []CollectiveRule `json:"collectives,omitempty"` // algorithms of collectives; at most CollectiveRulesMax
}

// HelpersMax is the largest value of Tuning.Helpers.
const HelpersMax = 8

// Values of Tuning.LargePath.
const (
	LargeAuto = "auto" // both are measured with each peer, and pulls are used where they are faster by a quarter
	LargeTCP  = "tcp"  // by the TCP connection
	LargePull = "pull" // receivers read by packets
)

// Values of Tuning.Encrypt.
const (
	EncryptNone = "none"
	EncryptTLS  = "tls"
)

// Values of Tuning.Exposure.
const (
	ExposureDenied  = "denied"
	ExposureAllowed = "allowed" // each rank gets a context of the device
)

// Values of Tuning.Reuse.
const (
	ReuseAuto   = "auto"   // source buffers are registered if measurements show a gain
	ReuseOff    = "off"    // source buffers are never registered: messages are copied; for comparisons
	ReuseAlways = "always" // source buffers are registered at their first use at any cost; for tests
)

// Values of Tuning.Receives.
const (
	ReceivesAuto   = "auto"   // a shared queue, if one queue per connection would need many buffers
	ReceivesOwn    = "own"    // one queue per connection, for comparisons
	ReceivesShared = "shared" // a shared queue, if the device supports it; for tests
)

// Transports between pods; TCP, RDMA and Ether for Tuning.Require.
const (
	TransportTCP   = "tcp"
	TransportRDMA  = "rdma"
	TransportNode  = "node"  // shared memory on one machine, and tcp to pods on other machines
	TransportEther = "ether" // small messages by UDP or raw Ethernet and large ones by TCP, or all by TCP to pods that those do not reach
)

// Names is a list of names; a single one may be written without brackets.
type Names []string

// UnmarshalJSON reads "rdma" or ["rdma", "tcp"].
func (n *Names) UnmarshalJSON(b []byte) error {
	var one string
	if string(b) == "null" {
		return nil // null leaves the list unchanged
	}
	if json.Unmarshal(b, &one) == nil {
		*n = Names{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("want a name or a list of names: %w", err)
	}
	*n = list
	return nil
}

// Duration is a time.Duration written as "500ms".
type Duration time.Duration

// MarshalJSON writes d as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads a string such as "3s".
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a duration is a string such as \"3s\": %w", err)
	}
	v, err := time.ParseDuration(s)
	*d = Duration(v)
	return err
}

func (d *Document) validateTuning(bad func(string, ...any) error) error {
	for _, f := range []struct {
		name     string
		v        int64
		min, max int64
	}{
		{"memory.arenaBytes", d.Memory.ArenaBytes, 1 << 16, 1 << 44},
		{"memory.slabBytes", d.Memory.SlabBytes, 1 << 18, 1 << 30},
		{"memory.pinnedBytes", d.Memory.PinnedBytes, 1 << 16, 1 << 44},
		{"tuning.eagerBytes", d.Tuning.EagerBytes, 1, 64 << 10},
		{"tuning.fragmentBytes", d.Tuning.FragmentBytes, 64, 1 << 20},
		{"tuning.creditBytes", d.Tuning.CreditBytes, 128 << 10, 1 << 30},
		{"tuning.heartbeat", int64(d.Tuning.Heartbeat), int64(time.Millisecond), int64(time.Hour)},
		{"tuning.deadAfter", int64(d.Tuning.DeadAfter), int64(10 * time.Millisecond), int64(time.Hour)},
		{"tuning.startWithin", int64(d.Tuning.StartWithin), int64(time.Second), int64(7 * 24 * time.Hour)},
	} {
		if f.v != 0 && (f.v < f.min || f.v > f.max) {
			text := func(v int64) string { return time.Duration(v).String() }
			if strings.HasSuffix(f.name, "Bytes") {
				text = func(v int64) string { return memory.Text(uint64(max(v, 0))) }
			}
			if f.v < 0 {
				return bad("%s is %d: less than nothing", f.name, f.v)
			}
			return bad("%s is %s, want 0 or %s to %s", f.name, text(f.v), text(f.min), text(f.max))
		}
	}
	if n := d.Tuning.Helpers; n < -1 || n > HelpersMax {
		return bad("tuning.helpers is %d, want -1 for none, 0 for a choice by the sidecar, or 1 to %d", n, HelpersMax)
	}
	if h, dead := d.Tuning.Heartbeat, d.Tuning.DeadAfter; h != 0 && dead != 0 && dead < 2*h {
		return bad("tuning.deadAfter %v is under twice tuning.heartbeat %v", time.Duration(dead), time.Duration(h))
	}
	for _, f := range []struct {
		name, v string
		want    []string
	}{
		{"tuning.transport", d.Tuning.Transport, []string{"", "auto", TransportTCP, TransportRDMA, TransportNode, TransportEther}},
		{"tuning.rendezvous", d.Tuning.Rendezvous, []string{"", "auto", "getcqe", "get", "put", "putnr", "rput", "stream"}},
		{"tuning.largePath", d.Tuning.LargePath, []string{"", LargeAuto, LargeTCP, LargePull}},
		{"tuning.channel", d.Tuning.Channel, []string{"", "piggyback", "basic", "pipeline", "zerocopy"}},
		{"tuning.reuse", d.Tuning.Reuse, []string{"", ReuseAuto, ReuseOff, ReuseAlways}},
		{"tuning.receives", d.Tuning.Receives, []string{"", ReceivesAuto, ReceivesOwn, ReceivesShared}},
		{"tuning.exposure", d.Tuning.Exposure, []string{"", ExposureDenied, ExposureAllowed}},
		{"tuning.wait", d.Tuning.Wait, []string{"", "poll", "yield", "block"}},
		{"tuning.encrypt", d.Tuning.Encrypt, []string{"", EncryptNone, EncryptTLS}},
	} {
		if !slices.Contains(f.want, f.v) {
			return bad("%s is %q, want one of %q", f.name, f.v, f.want[1:])
		}
	}
	for i, t := range d.Tuning.Require {
		switch {
		case t != TransportTCP && t != TransportRDMA && t != TransportEther:
			return bad("tuning.require[%d] is %q, want %q, %q or %q", i, t, TransportTCP, TransportEther, TransportRDMA)
		case slices.Contains(d.Tuning.Require[:i], t):
			return bad("tuning.require names %q twice", t)
		}
	}
	if err := d.validateCollectives(bad); err != nil {
		return err
	}
	return d.validateTransport(bad)
}

// validateTransport checks that the transport is one of those that are required.
func (d *Document) validateTransport(bad func(string, ...any) error) error {
	t, require := d.Tuning.Transport, d.Tuning.Require
	if len(require) == 0 {
		return nil
	}
	allowed := true
	switch t {
	case TransportTCP, TransportNode:
		allowed = slices.Contains(require, TransportTCP)
	case TransportEther:
		allowed = slices.Contains(require, TransportEther) || slices.Contains(require, TransportTCP)
	}
	switch {
	case t != TransportEther && slices.Contains(require, TransportEther):
		return bad("tuning.require %q has %q, and tuning.transport is %q: want %q", require, TransportEther, t, TransportEther)
	case !allowed:
		return bad("tuning.transport is %q, which tuning.require %q forbids", t, require)
	}
	return nil
}
