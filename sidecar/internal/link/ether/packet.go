package ether

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// A packet is a head, a body and a tag (api/wire/PROTOCOL.md §2.4). Offsets in bytes,
// little-endian:
//
//	0 session u32, of the receiver   4 kind u8   5 zeros   8 counter u64   16 body   tag of 16 bytes
//
// The head is authenticated, and the body is encrypted or authenticated as well. The nonce
// is made from the counter, which a direction never uses twice under one key.
const (
	headBytes = 16
	tagBytes  = 16
)

// Kinds of packets. Numbers are never reused.
const (
	kindStream = 1 // frames, and an acknowledgement
	kindAck    = 2 // an acknowledgement alone
	kindProbe  = 3 // asks for an echo of its size
	kindEcho   = 4 // the size of a probe
	kindEnd    = 5 // the connection has ended
	kindAsk    = 6 // asks for fragments of a block
	kindPart   = 7 // a fragment
	kindDeny   = 8 // refuses an ask
)

// counterMax bounds the packets of one direction under one key: with packets of at most
// 9,000 bytes they are 2^43.2 blocks, for which the advantage of a forger of AES-GCM stays
// below 2^-40 (NIST SP 800-38D, Appendix B and C). The connection is made again then.
const counterMax = 1 << 34

// sealer protects the packets of one direction.
type sealer struct {
	aead    cipher.AEAD
	encrypt bool // otherwise packets are authenticated only
	iv      [12]byte
	nonce   [12]byte // of the last call: a local array would be allocated for each packet
	counter uint64   // of the last packet that was sealed
}

// secretBytes is the size of the secret of each side.
const secretBytes = 32

// newSealer derives the key of the direction from the secrets of both sides.
func newSealer(sender, receiver *[secretBytes]byte, encrypt bool) (*sealer, error) {
	secret := append(append([]byte(nil), sender[:]...), receiver[:]...)
	raw, err := hkdf.Key(sha256.New, secret, nil, "outrigger ether 1", 16+12)
	if err != nil {
		return nil, fmt.Errorf("ether: deriving a key: %w", err)
	}
	block, err := aes.NewCipher(raw[:16])
	if err != nil {
		return nil, fmt.Errorf("ether: %w", err)
	}
	s := &sealer{encrypt: encrypt, iv: [12]byte(raw[16:])}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		return nil, fmt.Errorf("ether: %w", err) // in the mode fips140=only
	}
	return s, nil
}

func (s *sealer) setNonce(counter uint64) {
	s.nonce = s.iv
	n := s.nonce[4:]
	binary.LittleEndian.PutUint64(n, binary.LittleEndian.Uint64(n)^counter)
}

// seal appends a packet to dst, which has room for it.
func (s *sealer) seal(dst []byte, kind byte, session uint32, body []byte) []byte {
	s.counter++
	s.setNonce(s.counter)
	start := len(dst)
	dst = dst[:start+headBytes]
	head := dst[start:]
	clear(head)
	binary.LittleEndian.PutUint32(head, session)
	head[4] = kind
	binary.LittleEndian.PutUint64(head[8:], s.counter)
	if s.encrypt {
		return s.aead.Seal(dst, s.nonce[:], body, head)
	}
	dst = append(dst, body...)
	return s.aead.Seal(dst, s.nonce[:], nil, dst[start:])
}

// errForged means that a packet does not authenticate.
var errForged = errors.New("the packet does not authenticate")

// open returns the body of a packet, which it overwrites.
func (s *sealer) open(packet []byte) ([]byte, error) {
	s.setNonce(counterOf(packet))
	end := len(packet) - tagBytes
	if s.encrypt {
		body, err := s.aead.Open(packet[headBytes:headBytes], s.nonce[:], packet[headBytes:], packet[:headBytes])
		if err != nil {
			return nil, errForged
		}
		return body, nil
	}
	if _, err := s.aead.Open(nil, s.nonce[:], packet[end:], packet[:end]); err != nil {
		return nil, errForged
	}
	return packet[headBytes:end], nil
}

// whole reports whether b may be a packet: whether it has a head and a tag.
func whole(b []byte) bool { return len(b) >= headBytes+tagBytes }

// The fields of a packet. Preconditions: whole.
func sessionOf(packet []byte) uint32 { return binary.LittleEndian.Uint32(packet) }
func kindOf(packet []byte) byte      { return packet[4] }
func counterOf(packet []byte) uint64 { return binary.LittleEndian.Uint64(packet[8:]) }

// replay remembers the counters of packets that have arrived, so that a copy of a packet
// is recognized. Packets that arrive replayWindow counters late are taken for copies.
type replay struct {
	top  uint64 // highest counter that has arrived
	bits [replayWindow/64 + 1]uint64
}

// replayWindow is one word less than the bits: the word of the highest counter has bits of
// its own (RFC 6479).
const replayWindow = 960

// seen reports whether a packet with the counter has arrived, or is too old to tell.
func (r *replay) seen(counter uint64) bool {
	switch {
	case counter == 0 || counter+replayWindow <= r.top:
		return true
	case counter > r.top:
		return false
	}
	return r.bits[counter/64%uint64(len(r.bits))]&(1<<(counter%64)) != 0
}

// add records the counter of a packet that has authenticated.
func (r *replay) add(counter uint64) {
	if counter > r.top {
		if counter-r.top >= replayWindow {
			clear(r.bits[:])
		} else {
			for c := r.top/64 + 1; c <= counter/64; c++ {
				r.bits[c%uint64(len(r.bits))] = 0
			}
		}
		r.top = counter
	}
	r.bits[counter/64%uint64(len(r.bits))] |= 1 << (counter % 64)
}
