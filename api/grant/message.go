// Package grant is the protocol between a sidecar and the node's agent, by which the
// sidecar gets devices: messages, packets, and the sidecar's client. PROTOCOL.md in
// this folder specifies it; comments cite its sections.
package grant

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Version is the protocol's version, in every message.
const Version = 1

// MessageMax is the length of a message in bytes (§1).
const MessageMax = 4096

// errorMax bounds the text of a refusal, in bytes. Each byte may become six in JSON, and the
// whole message must fit into MessageMax.
const errorMax = 600

// Op is the operation of a message (§3).
type Op string

// The operations. Incoming and End are events from the agent; all others are requests and
// their answers.
const (
	Memlock  Op = "memlock"
	Join     Op = "join"
	Connect  Op = "connect"
	Ether    Op = "ether"
	Incoming Op = "incoming"
	End      Op = "end"
)

// EtherType is the ethertype of the frames that a packet socket receives: the first local
// experimental ethertype (IEEE 802, 9.2.4).
const EtherType = 0x88b5

// podMax bounds the numbers of pods.
const podMax = 1 << 20

// Message is a request, an answer or an event.
type Message struct {
	Version int    `json:"version"`
	Op      Op     `json:"op"`
	Bytes   uint64 `json:"bytes,omitempty"` // memory in bytes, in a memlock message
	Pod     int    `json:"pod,omitempty"`   // number of the pod, in the messages join, connect and incoming
	Error   string `json:"error,omitempty"` // reason, in an answer that refuses a request and in an end message
	// The fields of the answer to ether: name, number, hardware address and MTU of the interface.
	Interface string `json:"interface,omitempty"`
	Index     int    `json:"index,omitempty"`
	Address   string `json:"address,omitempty"`
	MTU       int    `json:"mtu,omitempty"`
}

// Encode returns the encoded message. It cuts the text of an error that is too long.
func (m *Message) Encode() []byte {
	out := *m
	if len(out.Error) > errorMax {
		out.Error = strings.ToValidUTF8(out.Error[:errorMax], "") + "..."
	}
	b, err := json.Marshal(&out)
	if err != nil {
		panic("grant: " + err.Error()) // strings and numbers always encode
	}
	return b
}

// Parse parses a message. It accepts every operation, of either side.
func Parse(b []byte) (*Message, error) {
	if len(b) > MessageMax {
		return nil, fmt.Errorf("a message of more than %d bytes", MessageMax)
	}
	m := &Message{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("not a message: %w", err)
	}
	if m.Version != Version {
		return nil, fmt.Errorf("version %d, this side speaks version %d", m.Version, Version)
	}
	if len(m.Interface) > interfaceMax || len(m.Address) > addressMax {
		return nil, fmt.Errorf("an interface of %d bytes with an address of %d bytes; at most %d and %d", len(m.Interface), len(m.Address), interfaceMax, addressMax)
	}
	switch m.Op {
	case Memlock, Ether, End:
	case Join, Connect, Incoming:
		if m.Pod < 0 || m.Pod >= podMax {
			return nil, fmt.Errorf("%d is not the number of a pod", m.Pod)
		}
	default:
		return nil, fmt.Errorf("unknown operation %q", m.Op)
	}
	return m, nil
}
