package ioatmodel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Messages of QEMU's x-pci-proxy-dev: a header of 16 bytes with the command and the size of what
// follows.
const (
	msgMemory      = 0 // memory of the machine, with its descriptors; no answer
	msgAnswer      = 1
	msgConfigWrite = 2
	msgConfigRead  = 3
	msgBARWrite    = 4
	msgBARRead     = 5
	msgInterrupt   = 6 // descriptors of interrupts; no answer
	msgReset       = 7

	headerBytes = 16
	bodyBytes   = 256
	regionsMax  = 8 // in a msgMemory
)

// Serve makes the model a PCI device of a virtual machine, which QEMU connects by the socket,
// until QEMU ends. The model then copies memory of the machine. It makes no interrupts; Linux's
// driver polls if none comes.
func (m *Model) Serve(socket *os.File) error {
	p := &proxy{m: m, fd: int(socket.Fd())}
	defer func() { p.use(nil) }()
	for {
		err := p.one()
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return nil
		} else if err != nil {
			return fmt.Errorf("ioatmodel: QEMU: %w", err)
		}
	}
}

type proxy struct {
	m      *Model
	fd     int
	memory []mapped // what use has mapped
}

// one serves one message.
func (p *proxy) one() error {
	var head [headerBytes]byte
	fds, err := p.read(head[:])
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd) // mappings and eventfds do not need it
		}
	}()
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	n := le.Uint64(head[8:])
	if n > bodyBytes {
		return fmt.Errorf("a message of %d bytes", n)
	}
	var body [bodyBytes]byte
	if _, err := p.read(body[:n]); err != nil {
		return err
	}
	switch command := le.Uint32(head[:]); command {
	case msgMemory:
		return p.attach(body[:], fds)
	case msgInterrupt:
		return nil
	case msgConfigWrite, msgConfigRead:
		return p.config(command, le.Uint32(body[:]), le.Uint32(body[8:]), le.Uint32(body[4:]))
	case msgBARWrite, msgBARRead:
		return p.bar(command, le.Uint64(body[:]), le.Uint32(body[16:]), le.Uint64(body[8:]))
	case msgReset:
		return p.answer(0)
	default:
		return fmt.Errorf("a message with command %d", command)
	}
}

// read fills b, and returns the descriptors that came with it.
func (p *proxy) read(b []byte) (fds []int, err error) {
	control := make([]byte, unix.CmsgSpace(4*regionsMax))
	for len(b) > 0 {
		n, c, _, _, err := unix.Recvmsg(p.fd, b, control, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fds, err
		case n == 0:
			return fds, io.EOF
		}
		b = b[n:]
		messages, err := unix.ParseSocketControlMessage(control[:c])
		if err != nil {
			return fds, err
		}
		for i := range messages {
			more, err := unix.ParseUnixRights(&messages[i])
			if err != nil {
				return fds, err
			}
			fds = append(fds, more...)
		}
	}
	return fds, nil
}

func (p *proxy) answer(v uint64) error {
	var b [headerBytes + 8]byte
	binary.LittleEndian.PutUint32(b[:], msgAnswer)
	binary.LittleEndian.PutUint64(b[8:], 8)
	binary.LittleEndian.PutUint64(b[headerBytes:], v)
	for at := 0; at < len(b); {
		n, err := unix.Write(p.fd, b[at:])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		at += max(n, 0)
	}
	return nil
}

// attach maps the memory that a message describes: 8 addresses, 8 sizes and 8 offsets.
func (p *proxy) attach(body []byte, fds []int) error {
	le := binary.LittleEndian
	var all []mapped
	for i, fd := range fds[:min(len(fds), regionsMax)] {
		at, n, off := le.Uint64(body[8*i:]), le.Uint64(body[64+8*i:]), le.Uint64(body[128+8*i:])
		mem, err := unix.Mmap(fd, int64(off), int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("mapping %d bytes of the machine: %w", n, err)
		}
		all = append(all, mapped{at, mem})
	}
	p.use(all)
	return nil
}

// use replaces the memory.
func (p *proxy) use(all []mapped) {
	p.m.mem.set(all)
	for _, r := range p.memory {
		_ = unix.Munmap(r.mem) // it was mapped by attach
	}
	p.memory = all
}

func (p *proxy) config(command, off, width, v uint32) error {
	width = min(width, 4)
	if command == msgConfigRead {
		v, err := p.m.ReadConfig(off, width)
		if err != nil {
			v = ^uint32(0)
		}
		return p.answer(uint64(v))
	}
	_ = p.m.WriteConfig(off, width, v) // the bus ignores a write to nowhere
	return p.answer(0)
}

// bar accesses BAR 0, by the address that the machine has given to it.
func (p *proxy) bar(command uint32, at uint64, width uint32, v uint64) error {
	off := at - p.m.space.bar()
	if off >= barBytes || width == 0 || width > 8 {
		return fmt.Errorf("an access of %d bytes at %#x, which is not in BAR 0", width, at)
	}
	if command == msgBARRead {
		return p.answer(p.m.Read(uint32(off), width))
	}
	p.m.Write(uint32(off), width, v)
	return p.answer(0)
}
