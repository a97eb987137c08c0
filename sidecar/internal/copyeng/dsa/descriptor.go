package dsa

import "encoding/binary"

// Layout of a descriptor (include/uapi/linux/idxd.h, struct dsa_hw_desc). Bytes that are not
// listed are 0; the kernel fills in the address space (PASID).
const (
	descriptorBytes  = 64
	offOperation     = 4 // u32: flags in bits 23:0, opcode in bits 31:24
	offCompletion    = 8
	offSource        = 16
	offDestination   = 24
	offSize          = 32 // u32
	opcodeMove       = 3
	flagRecordValid  = 1 << 2 // the completion address is valid
	flagRecordWanted = 1 << 3 // a completion record is written
)

// Layout of a completion record (struct dsa_completion_record). recordStride is more than the
// record's 32 bytes: records in one cache line would take the line from each other.
const (
	recordBytes    = 32
	recordStride   = 64
	resultShift    = 8 // of the first word; the status is in bits 7:0
	resultBackward = 1 // the copy ran from the end
)

// Statuses of a completion.
const (
	statusMask      = 0x7f
	statusWrite     = 0x80 // the fault was a write
	statusSuccess   = 0x01
	statusPageFault = 0x03
)

// statusNames are the statuses that a descriptor of this package could cause.
var statusNames = map[uint8]string{
	0x04: "page request failed", 0x10: "opcode", 0x11: "flags", 0x12: "reserved field", 0x13: "size",
	0x16: "overlap", 0x1a: "completion address", 0x1b: "alignment of the completion address",
	0x1d: "privilege", 0x1e: "traffic class", 0x20: "hardware", 0x21: "hardware", 0x22: "address translation",
}

// statusName returns a status for an error's text.
func statusName(status uint8) string {
	if name, ok := statusNames[status&statusMask]; ok {
		return name
	}
	return "unknown"
}

// encode writes the descriptor of a copy.
func encode(to []byte, dst, src, record uint64, n int) {
	le := binary.LittleEndian
	clear(to[:descriptorBytes])
	le.PutUint32(to[offOperation:], opcodeMove<<24|flagRecordValid|flagRecordWanted)
	le.PutUint64(to[offCompletion:], record)
	le.PutUint64(to[offSource:], src)
	le.PutUint64(to[offDestination:], dst)
	le.PutUint32(to[offSize:], uint32(n))
}
