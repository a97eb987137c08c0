// Package remote starts commands in other pods of a job, for a program that runs its own
// mpirun. It takes the place of ssh: an agent, which mpirun starts instead of ssh, sends
// the command; a server, in the launcher of the other pod, runs the command there as the
// same user, in the application's container; the sidecars relay the bytes between the two
// over connections with the job's certificates (pmi, requests outrigger_exec and
// outrigger_serve) and do not interpret them.
//
// Agent and server exchange frames: kind u8, length u32, and as many bytes. The first frame
// of an agent is the command. The agent then sends input, the server output, and the exit
// code last.
package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// Kinds of frames.
const (
	kindCommand  = 'c' // from the agent: a line for /bin/sh
	kindInput    = 'i' // from the agent: standard input
	kindInputEnd = 'e' // from the agent: end of standard input
	kindOutput   = 'o' // from the server: the command's standard output
	kindError    = 'r' // from the server: the command's standard error
	kindTaken    = 't' // from the server: a frame of input was passed to the command, or dropped after it closed its input
	kindExit     = 'x' // last frame of the server: the exit code, u32
	kindRefused  = 'f' // last frame of the server: why the command could not be started
)

// Bounds of frames. Daemons of a large job have command lines of some KiB.
const (
	commandMax = 1 << 20
	dataMax    = 32 << 10
	frameHead  = 5

	// inputMax bounds the frames of input that the command has not read, so that no other
	// frame of the agent waits behind them, and the server notices the agent's end.
	inputMax = 8
)

// hostPrefix and the number of a pod are the pod's host name for mpirun.
const hostPrefix = "pod-"

// Host returns the name of a pod in mpirun's list of hosts.
func Host(pod int) string { return hostPrefix + strconv.Itoa(pod) }

// podOf returns the pod that a host of an ssh command line means: pod-3, or user@pod-3.
func podOf(name string) (int, error) {
	_, host, found := strings.Cut(name, "@")
	if !found {
		host = name
	}
	number, ok := strings.CutPrefix(host, hostPrefix)
	pod, err := strconv.Atoi(number)
	if !ok || err != nil || pod < 0 {
		return 0, fmt.Errorf("host %q: the pods of a job are called %s, %s and so on; leave it to the list of hosts that mpirun is given: remove hosts of its line (-host, -hostfile, -machinefile), and unset variables of SLURM (SLURM_JOBID, SLURM_JOB_ID, SLURM_NODELIST), by which Open MPI takes those of an allocation", host, Host(0), Host(1))
	}
	return pod, nil
}

var errFrame = errors.New("malformed frame")

// writer writes whole frames from several goroutines.
type writer struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *writer) frame(kind byte, body []byte) error {
	b := make([]byte, 0, frameHead+len(body))
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.out.Write(append(b, body...))
	return err
}

// stream is a Writer that sends frames of one kind.
type stream struct {
	to   *writer
	kind byte
}

func (s stream) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		piece := b[n:min(n+dataMax, len(b))]
		if err := s.to.frame(s.kind, piece); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return len(b), nil
}

// readFrame reads the next frame. It allocates memory as bytes arrive, and not by the
// announced length.
func readFrame(in io.Reader) (kind byte, body []byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, nil, err
	}
	kind, n := head[0], int64(binary.LittleEndian.Uint32(head[1:]))
	limit := int64(dataMax)
	if kind == kindCommand {
		limit = commandMax
	}
	if n > limit {
		return 0, nil, fmt.Errorf("%w: %q of %d bytes, at most %d", errFrame, kind, n, limit)
	}
	body, err = io.ReadAll(io.LimitReader(in, n))
	if err == nil && int64(len(body)) != n {
		err = io.ErrUnexpectedEOF
	}
	return kind, body, err
}
