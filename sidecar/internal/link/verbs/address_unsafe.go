package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"os"
	"unsafe"
)

// Bounds of the random addresses: canonical ones of a user's half, so that no
// device takes offence, and never near 0.
const (
	addressBits = 46
	addressBase = 1 << addressBits
)

// randomAddress draws the address under which peers know mem. It lies in its page
// as mem does in its own, as devices want it.
func randomAddress(mem []byte) uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	page := uint64(os.Getpagesize() - 1)
	at := binary.LittleEndian.Uint64(b[:])%addressBase + addressBase
	return at&^page | addressOf(mem)&page
}

// addressOf is where mem begins.
func addressOf(mem []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}
