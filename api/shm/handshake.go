package shm

import (
	"encoding/binary"
	"fmt"
)

// The handshake on the Unix socket (SOCK_SEQPACKET, §2): the client sends one
// Hello; the sidecar answers with one Welcome, which carries three file
// descriptors if it accepts the client: control segment, arena, doorbell; with FeatureExpose a
// fourth one, that of a device (§5.2). After that the socket carries, with FeaturePieces, an Ask
// and an Answer for each piece of the arena (§2.3), and nothing else. Each side detects the end of
// the other one by the end of the socket.
const (
	HelloBytes   = 64
	WelcomeBytes = 512
	helloMagic   = 0x4f554852 // "RHUO"
	welcomeMagic = 0x4f555752
	textMax      = WelcomeBytes - 72 - 8 // the last 8 bytes are what the fourth descriptor needs
)

// Hello is the client's request to attach.
type Hello struct {
	ABI        uint32
	Features   uint64
	Rank       uint32
	ArenaBytes uint64 // 0: the sidecar's default
}

// Encode returns the message's bytes.
func (h *Hello) Encode() []byte {
	b := make([]byte, HelloBytes)
	le := binary.LittleEndian
	le.PutUint32(b[0:], helloMagic)
	le.PutUint32(b[4:], h.ABI)
	le.PutUint64(b[8:], h.Features)
	le.PutUint32(b[16:], h.Rank)
	le.PutUint64(b[24:], h.ArenaBytes)
	return b
}

// DecodeHello decodes a Hello.
func DecodeHello(b []byte) (Hello, error) {
	var h Hello
	le := binary.LittleEndian
	if len(b) != HelloBytes || le.Uint32(b) != helloMagic {
		return h, fmt.Errorf("shm: %d bytes that are no hello message", len(b))
	}
	h.ABI, h.Features = le.Uint32(b[4:]), le.Uint64(b[8:])
	h.Rank, h.ArenaBytes = le.Uint32(b[16:]), le.Uint64(b[24:])
	return h, nil
}

// Welcome is the sidecar's answer. Text is the reason if the sidecar rejects the client, or the
// reason why FeatureExpose, which the client has, is not used.
type Welcome struct {
	ABI          uint32
	Features     uint64
	Accepted     bool
	Rank, Ranks  uint32
	Pod, Pods    uint32
	SegmentBytes uint64
	ArenaBytes   uint64
	EagerBytes   uint64 // largest payload worth sending through one slab slot
	Sharers      uint32 // processes of the job that share the sidecar's processors, it among them; 0: not known
	Domain       uint32 // domain of the fourth descriptor's device: handle of the protection domain
	Driver       uint32 // and number of its driver in the kernel's interface
	Text         string
}

// Encode returns the message's bytes.
func (w *Welcome) Encode() []byte {
	b := make([]byte, WelcomeBytes)
	le := binary.LittleEndian
	le.PutUint32(b[0:], welcomeMagic)
	le.PutUint32(b[4:], w.ABI)
	le.PutUint64(b[8:], w.Features)
	if w.Accepted {
		le.PutUint32(b[16:], 1)
	}
	le.PutUint32(b[20:], w.Rank)
	le.PutUint32(b[24:], w.Ranks)
	le.PutUint32(b[28:], w.Pod)
	le.PutUint32(b[32:], w.Pods)
	le.PutUint64(b[40:], w.SegmentBytes)
	le.PutUint64(b[48:], w.ArenaBytes)
	le.PutUint64(b[56:], w.EagerBytes)
	le.PutUint32(b[68:], w.Sharers)
	n := copy(b[72:72+textMax], w.Text)
	le.PutUint32(b[64:], uint32(n))
	le.PutUint32(b[504:], w.Domain)
	le.PutUint32(b[508:], w.Driver)
	return b
}

// DecodeWelcome decodes a Welcome.
func DecodeWelcome(b []byte) (Welcome, error) {
	var w Welcome
	le := binary.LittleEndian
	if len(b) != WelcomeBytes || le.Uint32(b) != welcomeMagic {
		return w, fmt.Errorf("shm: %d bytes that are no welcome message", len(b))
	}
	w.ABI, w.Features = le.Uint32(b[4:]), le.Uint64(b[8:])
	w.Accepted = le.Uint32(b[16:]) == 1
	w.Rank, w.Ranks, w.Pod, w.Pods = le.Uint32(b[20:]), le.Uint32(b[24:]), le.Uint32(b[28:]), le.Uint32(b[32:])
	w.SegmentBytes, w.ArenaBytes, w.EagerBytes = le.Uint64(b[40:]), le.Uint64(b[48:]), le.Uint64(b[56:])
	w.Sharers = le.Uint32(b[68:])
	w.Domain, w.Driver = le.Uint32(b[504:]), le.Uint32(b[508:])
	w.Text = string(b[72 : 72+min(le.Uint32(b[64:]), textMax)])
	return w, nil
}
