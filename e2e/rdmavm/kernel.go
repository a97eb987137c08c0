package rdmavm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// extractKernel writes the ELF file that a compressed kernel carries. QEMU starts
// it directly (PVH); unpacking it inside of an emulated machine takes half a
// minute.
func extractKernel(bzImage string, to io.Writer) error {
	image, err := os.ReadFile(bzImage)
	if err != nil {
		return err
	}
	payload, err := kernelPayload(image)
	if err != nil {
		return fmt.Errorf("%s: %w", bzImage, err)
	}
	var said bytes.Buffer
	// The payload is one xz stream, followed by the size of the uncompressed data.
	xz := exec.Command("xz", "-dc", "--single-stream")
	xz.Stdin, xz.Stdout, xz.Stderr = bytes.NewReader(payload), to, &said
	if err := xz.Run(); err != nil {
		return fmt.Errorf("%s: unpacking with xz: %w: %s", bzImage, err, said.Bytes())
	}
	return nil
}

// The setup header of a kernel (Documentation/arch/x86/boot.rst in Linux).
const (
	setupSectors  = 0x1f1
	bootFlag      = 0x1fe
	payloadOffset = 0x248
	payloadLength = 0x24c
	setupEnd      = 0x250
	sector        = 512
)

var errNoKernel = errors.New("no x86 kernel in the form of Linux's boot protocol 2.08 or later, compressed with xz")

var xzMagic = []byte("\xfd7zXZ\x00")

func kernelPayload(image []byte) ([]byte, error) {
	le := binary.LittleEndian
	if len(image) < setupEnd || le.Uint16(image[bootFlag:]) != 0xaa55 {
		return nil, errNoKernel
	}
	sectors := int(image[setupSectors])
	if sectors == 0 {
		sectors = 4
	}
	start := (sectors+1)*sector + int(le.Uint32(image[payloadOffset:]))
	end := start + int(le.Uint32(image[payloadLength:]))
	if start > end || end > len(image) || !bytes.HasPrefix(image[start:end], xzMagic) {
		return nil, errNoKernel
	}
	return image[start:end], nil
}
