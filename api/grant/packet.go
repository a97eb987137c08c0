package grant

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ErrMessage is wrapped by the error about a message that violates the protocol.
var ErrMessage = errors.New("bad message")

// rightsMax is the maximum number of descriptors that are read with a message. The kernel
// drops further ones.
const rightsMax = 4

// Send writes a message, with a descriptor if f is not nil. The sender keeps f.
func Send(conn *net.UnixConn, m *Message, f *os.File) error {
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	_, _, err := conn.WriteMsgUnix(m.Encode(), rights, nil)
	return err
}

// Receive reads a message and its descriptor, if it has one. A message with several
// descriptors is an error, and the descriptors are closed. At the end of the connection,
// Receive returns io.EOF.
func Receive(conn *net.UnixConn) (*Message, *os.File, error) {
	text, rights := make([]byte, MessageMax+1), make([]byte, unix.CmsgSpace(rightsMax*4))
	n, rn, flags, _, err := conn.ReadMsgUnix(text, rights)
	files, rightsErr := descriptors(rights[:rn])
	switch {
	case err != nil:
		return nil, nil, errors.Join(err, drop(files))
	case n == 0:
		return nil, nil, errors.Join(io.EOF, drop(files))
	case rightsErr != nil, flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0, len(files) > 1:
		return nil, nil, errors.Join(fmt.Errorf("%w: too long, or too many descriptors", ErrMessage), drop(files))
	}
	m, err := Parse(text[:n])
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: %w", ErrMessage, err), drop(files))
	}
	if len(files) == 1 {
		return m, files[0], nil
	}
	return m, nil, nil
}

func descriptors(rights []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // credentials or other control messages that were not requested
		}
		for _, fd := range fds {
			// The runtime would poll a non-blocking descriptor, and the sender may answer that
			// poll itself, or never: a file of a file system that it serves.
			_ = unix.SetNonblock(fd, false) // a descriptor without flags is blocking
			files = append(files, os.NewFile(uintptr(fd), "granted"))
		}
	}
	return files, nil
}

func drop(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, Drop(f))
	}
	return errors.Join(errs...)
}
