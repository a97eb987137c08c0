package segment

import "encoding/binary"

func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
func put64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
func get32(b []byte) uint32    { return binary.LittleEndian.Uint32(b) }
func get64(b []byte) uint64    { return binary.LittleEndian.Uint64(b) }
