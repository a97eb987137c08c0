//go:build offload

package grant

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// holder is a child in the place of a sidecar: it does with its socket what a line says, and
// answers with the result.
type holder struct {
	socket *grant.Socket
	ring   []byte
	frame  int // number of the next frame of the ring
}

const ringFrames, frameBytes = 64, 16 << 10

func beHolder() error {
	h := &holder{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		answer, err := h.do(lines.Text())
		switch {
		case err != nil:
			answer = err.Error()
		case answer == "":
			answer = "ok"
		}
		if _, err := fmt.Fprintln(os.Stdout, strings.ReplaceAll(answer, "\n", "; ")); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (h *holder) do(line string) (string, error) {
	var s int
	if h.socket != nil {
		s = h.socket.FD
	}
	var index int
	var kind uint16
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "status":
		return status()
	case "own":
		_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
		return "", err
	case "ether":
		return h.ask()
	case "ether-with":
		return askWith(rest)
	case "ring":
		return "", h.mapRing()
	case "receive":
		return h.receive()
	case "send", "output-ring":
		var address, text string
		if _, err := fmt.Sscanf(rest, "%s %d %v", &address, &index, &kind); err != nil {
			return "", err
		}
		text = strings.SplitN(rest, " ", 4)[3]
		if verb == "send" {
			return "", h.send(address, index, kind, text)
		}
		return "", h.outputRing(address, index, kind, text)
	case "bind":
		if _, err := fmt.Sscanf(rest, "%d %v", &index, &kind); err != nil {
			return "", err
		}
		return "", unix.Bind(s, &unix.SockaddrLinklayer{Ifindex: index, Protocol: networkOrder(kind)})
	case "promiscuous":
		if _, err := fmt.Sscanf(rest, "%d", &index); err != nil {
			return "", err
		}
		return "", unix.SetsockoptPacketMreq(s, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC})
	case "detach":
		return "", unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	case "attach":
		all := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: acceptedMax}
		return "", unix.SetsockoptSockFprog(s, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &all})
	case "attach-bpf":
		return "", unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, 0)
	case "unlock":
		return "", unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 0)
	case "outgoing":
		return "", unix.SetsockoptInt(s, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 0)
	case "vnet-header":
		return "", unix.SetsockoptInt(s, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	case "force-receive-buffer":
		return "", unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	case "set-address":
		r, err := unix.NewIfreq(rest)
		if err != nil {
			return "", err
		}
		r.SetUint16(unix.ARPHRD_ETHER)
		return "", unix.IoctlIfreq(s, unix.SIOCSIFHWADDR, r)
	}
	return "", fmt.Errorf("unknown line %q", line)
}

// status returns the lines of /proc/self/status about privileges.
func status() (string, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if key, _, _ := strings.Cut(line, ":"); key == "Uid" || strings.HasPrefix(key, "Cap") || key == "NoNewPrivs" {
			found = append(found, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(found, ", "), nil
}

// ask asks the agent for a socket, and keeps it.
func (h *holder) ask() (string, error) {
	c, err := grant.Dial(context.Background(), os.Getenv(envSocket))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if h.socket, err = c.Ether(context.Background()); err != nil {
		return "", err
	}
	return fmt.Sprint(h.socket.Interface, " ", h.socket.Index, " ", h.socket.Address, " ", h.socket.MTU), nil
}

// askWith asks the agent with a descriptor of a file.
func askWith(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	c, err := net.Dial("unixpacket", os.Getenv(envSocket))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := grant.Send(c.(*net.UnixConn), &grant.Message{Version: grant.Version, Op: grant.Ether}, f); err != nil {
		return "", err
	}
	m, got, err := grant.Receive(c.(*net.UnixConn))
	if got != nil {
		_ = got.Close() // only the answer matters
	}
	if err != nil {
		return "", err
	}
	return m.Interface + m.Error, nil
}

// mapRing makes a ring for incoming frames (Linux, packet_mmap.rst).
func (h *holder) mapRing() error {
	s := h.socket.FD
	if err := unix.SetsockoptInt(s, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return err
	}
	if err := unix.SetsockoptTpacketReq(s, unix.SOL_PACKET, unix.PACKET_RX_RING, ringOf()); err != nil {
		return err
	}
	var err error
	h.ring, err = unix.Mmap(s, 0, ringFrames*frameBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

func ringOf() *unix.TpacketReq {
	return &unix.TpacketReq{Block_size: ringFrames * frameBytes, Block_nr: 1, Frame_size: frameBytes, Frame_nr: ringFrames}
}

// headerBytes is the size of a header of TPACKET_V2, after which the frame's address is.
const headerBytes = 32

// receive waits for the next frame of the ring, and returns its ethertype, source and payload.
func (h *holder) receive() (string, error) {
	frame := h.ring[h.frame*frameBytes : (h.frame+1)*frameBytes]
	fds := []unix.PollFd{{Fd: int32(h.socket.FD), Events: unix.POLLIN}}
	for binary.NativeEndian.Uint32(frame)&unix.TP_STATUS_USER == 0 {
		if n, err := unix.Poll(fds, 60_000); err != nil && !errors.Is(err, unix.EINTR) || n == 0 {
			return "", errors.Join(errors.New("no frame arrives"), err)
		}
	}
	length, at := binary.NativeEndian.Uint32(frame[8:]), binary.NativeEndian.Uint16(frame[14:])
	address := frame[headerBytes:]
	text := fmt.Sprintf("%02x%02x from %s: %s", address[2], address[3], net.HardwareAddr(address[12:18]), frame[at:uint32(at)+length])
	binary.NativeEndian.PutUint32(frame, unix.TP_STATUS_KERNEL)
	h.frame = (h.frame + 1) % ringFrames
	return text, nil
}

// destination returns the address of a frame. The text may have more bytes than an Ethernet
// address.
func destination(address string, index int, kind uint16) (*unix.SockaddrLinklayer, error) {
	to := &unix.SockaddrLinklayer{Protocol: networkOrder(kind), Ifindex: index}
	for i, word := range strings.Split(address, ":") {
		if i == len(to.Addr) {
			return nil, fmt.Errorf("%s is too long", address)
		}
		if _, err := fmt.Sscanf(word, "%02x", &to.Addr[i]); err != nil {
			return nil, err
		}
		to.Halen++
	}
	return to, nil
}

func (h *holder) send(address string, index int, kind uint16, text string) error {
	to, err := destination(address, index, kind)
	if err != nil {
		return err
	}
	return unix.Sendto(h.socket.FD, []byte(text), 0, to)
}

// outputRing sends a frame by a ring for outgoing frames.
func (h *holder) outputRing(address string, index int, kind uint16, text string) error {
	s := h.socket.FD
	if err := unix.SetsockoptInt(s, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return err
	}
	if err := unix.SetsockoptTpacketReq(s, unix.SOL_PACKET, unix.PACKET_TX_RING, ringOf()); err != nil {
		return err
	}
	ring, err := unix.Mmap(s, 0, ringFrames*frameBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(ring[headerBytes:], text)
	binary.NativeEndian.PutUint32(ring[4:], uint32(len(text)))
	binary.NativeEndian.PutUint32(ring, unix.TP_STATUS_SEND_REQUEST)
	to, err := destination(address, index, kind)
	if err != nil {
		return err
	}
	return errors.Join(unix.Sendto(s, nil, 0, to), unix.Munmap(ring))
}
