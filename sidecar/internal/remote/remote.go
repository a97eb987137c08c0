// Package remote starts commands in other pods of a job, for a program that brings
// its own mpirun: what ssh is elsewhere. An agent, which mpirun starts instead of
// ssh, asks; a server, beside the launcher of the other pod, runs the command there
// as the same user, in the application's own container; the sidecars carry the bytes
// between the two over connections with the job's certificates (pmi, commands
// outrigger_exec and outrigger_serve) and do not look into them.
//
// What the two tell each other are frames: kind u8, length u32, so many bytes. An
// agent's first one is the command.
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
	kindCommand  = 'c' // agent's: a line for /bin/sh
	kindInput    = 'i' // agent's: of its standard input
	kindInputEnd = 'e' // agent's: there is no more
	kindOutput   = 'o' // server's: of the command's standard output
	kindError    = 'r' // server's: of its standard error
	kindTaken    = 't' // server's: a frame of input is with the command, or nobody wants it
	kindExit     = 'x' // server's last: the exit code, u32
	kindRefused  = 'f' // server's last: why the command could not be started
)

// What a frame may have. Daemons of a large job have lines of some KiB.
const (
	commandMax = 1 << 20
	dataMax    = 32 << 10
	frameHead  = 5

	// inputMax bounds the frames of input that are under way to a command, which may
	// not read it. So nothing that the agent says waits behind it: not even its end.
	inputMax = 8
)

// hostPrefix and the number of a pod are its name for mpirun.
const hostPrefix = "pod-"

// Host is the name of a pod in mpirun's list of hosts.
func Host(pod int) string { return hostPrefix + strconv.Itoa(pod) }

// podOf is the pod that a name of an ssh line means: pod-3, or somebody@pod-3.
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

// writer writes whole frames of several goroutines.
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

// stream sends what is written as frames of one kind.
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

// readFrame reads the next one. Memory is taken as bytes come, and not by what the
// length says.
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
