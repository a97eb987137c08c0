package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"os"
	"unsafe"
)

// Bounds of the random addresses: canonical ones of the user's half, which every device
// accepts, and never near 0.
const (
	addressBits = 46
	addressBase = 1 << addressBits
)

// randomAddress returns a random address under which peers access mem. Its offset in the
// page is that of mem, as devices require.
func randomAddress(mem []byte) uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	page := uint64(os.Getpagesize() - 1)
	at := binary.LittleEndian.Uint64(b[:])%addressBase + addressBase
	return at&^page | addressOf(mem)&page
}

// addressOf returns the address of mem.
func addressOf(mem []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}
