// Package control carries requests to the processes of the test cluster: net/rpc over a Unix
// socket. The kernel knows the process that listens, so that no caller needs a file of process
// IDs, which could be stale.
package control

import (
	"fmt"
	"net"
	"net/rpc"
	"os"

	"golang.org/x/sys/unix"
)

// Serve answers requests for service's methods, each under its type's name,
// until the listener closes.
func Serve(socket string, service any) (net.Listener, error) {
	server := rpc.NewServer()
	if err := server.Register(service); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	go server.Accept(listener)
	return listener, nil
}

// Nothing is the argument or the answer of a request that has none.
type Nothing struct{}

// Ask makes one request. Its error is the other side's, or says that no process
// listens at socket.
func Ask(socket, method string, argument, answer any) error {
	client, err := rpc.Dial("unix", socket)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	defer client.Close()
	return client.Call(method, argument, answer)
}

// Pid returns the process that listens at socket, as this process's namespace
// numbers it.
func Pid(socket string) (int, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0, fmt.Errorf("control: %w", err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("control: %w", err)
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || failed != nil {
		return 0, fmt.Errorf("control: who listens at %s: %w", socket, firstError(err, failed))
	}
	return int(peer.Pid), nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
