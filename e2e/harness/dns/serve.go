package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"k8s.io/client-go/rest"
)

// idle is how long a TCP client may take between two queries.
const idle = 10 * time.Second

// Serve answers queries at address, host:port, over UDP and TCP, until ctx ends.
// It returns once it knows the cluster's Services.
func Serve(ctx context.Context, address string, config *rest.Config) error {
	directory, err := watch(ctx, config)
	if err != nil {
		return fmt.Errorf("name server: %w", err)
	}
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return fmt.Errorf("name server: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return errors.Join(fmt.Errorf("name server: %w", err), packets.Close())
	}
	context.AfterFunc(ctx, func() {
		_ = packets.Close() // ends the loops below
		_ = listener.Close()
	})
	go serveUDP(packets, directory.resolve)
	go serveTCP(listener, directory.resolve)
	return nil
}

func serveUDP(packets net.PacketConn, find resolve) {
	query := make([]byte, plainBytes*8)
	for {
		n, from, err := packets.ReadFrom(query)
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			continue // of one datagram, as when its sender is gone
		}
		reply, err := answer(query[:n], find, plainBytes)
		if err != nil {
			continue // not a query: no answer is due
		}
		_, _ = packets.WriteTo(reply, from) // a lost reply is asked for again
	}
}

func serveTCP(listener net.Listener, find resolve) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for converse(conn, find) == nil {
			}
		}()
	}
}

// converse answers one query of a connection; each message follows its length (RFC 1035,
// 4.2.2).
func converse(conn net.Conn, find resolve) error {
	if err := conn.SetDeadline(time.Now().Add(idle)); err != nil {
		return err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return err
	}
	reply, err := answer(query, find, 0)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
	return err
}
