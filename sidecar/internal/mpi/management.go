package mpi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// management is the sidecar's process management (package pmi), by its socket, and
// what a launcher asks of it.
type management string

// patience bounds one exchange with the sidecar, which answers from memory.
const patience = 10 * time.Second

// dial connects; the caller bounds what follows.
func (m management) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	conn, err := d.DialContext(ctx, "unix", string(m))
	if err != nil {
		return nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	return conn, nil
}

// query is one question, and the fields of its answer.
func (m management) query(ctx context.Context, line string) (map[string]string, error) {
	conn, err := m.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing more is asked
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	return ask(conn, line, 1)
}

// ask sends a line and reads the fields of as many.
func ask(conn net.Conn, line string, answers int) (map[string]string, error) {
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	fields := map[string]string{}
	// Byte by byte in effect: nothing behind the answers may be read, since the
	// connection goes on in the rank. The sidecar says nothing unasked.
	in := bufio.NewReader(conn)
	for range answers {
		text, err := in.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("process management of the sidecar: %w", err)
		}
		for word := range strings.FieldsSeq(text) {
			if key, value, ok := strings.Cut(word, "="); ok {
				fields[key] = value
			}
		}
	}
	return fields, nil
}

// place is where in the job a pod is.
type place struct {
	name       string
	pod, first int   // the pod, and its first rank
	layout     []int // ranks by pod
	machines   int   // that the pods are on, as far as their addresses tell
}

// ranks of this pod.
func (p *place) ranks() int { return p.layout[p.pod] }

// layoutText is the layout as the sidecar tells it.
func (p *place) layoutText() string {
	texts := make([]string, len(p.layout))
	for i, n := range p.layout {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

// world is how many ranks the job has.
func (p *place) world() int {
	n := 0
	for _, ranks := range p.layout {
		n += ranks
	}
	return n
}

// counted says to a rank of this pod which one it is, by the variables that the launcher of each
// MPI sets: programs and wrappers read them before MPI_Init, to choose a GPU for example. A
// script gets those of all.
func (p *place) counted(f Family, rank int) []string {
	local := rank - p.first
	env := []string{fmt.Sprintf("PMI_RANK=%d", rank), fmt.Sprintf("PMI_SIZE=%d", p.world())}
	if f != MPICH && f != Intel {
		env = append(env,
			fmt.Sprintf("OMPI_COMM_WORLD_RANK=%d", rank), fmt.Sprintf("OMPI_COMM_WORLD_SIZE=%d", p.world()),
			fmt.Sprintf("OMPI_COMM_WORLD_LOCAL_RANK=%d", local), fmt.Sprintf("OMPI_COMM_WORLD_LOCAL_SIZE=%d", p.ranks()),
			fmt.Sprintf("OMPI_COMM_WORLD_NODE_RANK=%d", local))
	}
	if f != OpenMPI {
		env = append(env, fmt.Sprintf("MPI_LOCALRANKID=%d", local), fmt.Sprintf("MPI_LOCALNRANKS=%d", p.ranks()))
	}
	return env
}

// place asks for this pod's.
func (m management) place(ctx context.Context) (place, error) {
	a, err := m.query(ctx, "cmd=outrigger_job")
	if err != nil {
		return place{}, err
	}
	p := place{name: a["name"]}
	for text := range strings.SplitSeq(a["layout"], ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return p, fmt.Errorf("process management at %s answers with layout %q", m, a["layout"])
		}
		p.layout = append(p.layout, n)
	}
	if p.pod, err = strconv.Atoi(a["pod"]); err != nil || p.pod < 0 || p.pod >= len(p.layout) {
		return p, fmt.Errorf("process management at %s answers with pod %q of %q", m, a["pod"], a["layout"])
	}
	for _, n := range p.layout[:p.pod] {
		p.first += n
	}
	if p.machines, err = strconv.Atoi(a["machines"]); err != nil {
		return p, fmt.Errorf("process management at %s answers with machines %q", m, a["machines"])
	}
	return p, nil
}

// fate is what became of a rank, as its sidecar knows it.
type fate struct {
	met      bool // the other ranks, by PMI
	attached bool
	vanished bool
	loaded   bool // a process of its pod has loaded an MPI
}

// fate asks for a rank's.
func (m management) fate(ctx context.Context, rank int) (fate, error) {
	a, err := m.query(ctx, fmt.Sprintf("cmd=outrigger_rank rank=%d", rank))
	return fate{met: a["init"] == "1", attached: a["attached"] == "1", vanished: a["vanished"] == "1", loaded: a["loaded"] == "1"}, err
}

// idle asks whether ranks wait in MPI_Init for one that has ended without MPI: whether that
// is known, and which one; -1: none. met is one of this pod that waits by PMIx; -1: none.
func (m management) idle(ctx context.Context, rank, met int) (known bool, waits int, err error) {
	a, err := m.query(ctx, fmt.Sprintf("cmd=outrigger_idle rank=%d met=%d", rank, met))
	if err != nil {
		return false, -1, err
	}
	waits, err = strconv.Atoi(a["waits"])
	return a["known"] == "1", waits, err
}

// failed tells that a rank has ended badly.
func (m management) failed(ctx context.Context, rank, code int) error {
	_, err := m.query(ctx, fmt.Sprintf("cmd=outrigger_failed rank=%d code=%d", rank, code))
	return err
}

// abort tells that a rank asks for the end of the job, which it has not asked the sidecar for.
func (m management) abort(ctx context.Context, rank int, code int32, text string) error {
	text = strings.Join(strings.Fields(text), " ")
	_, err := m.query(ctx, fmt.Sprintf("cmd=outrigger_abort rank=%d exitcode=%d message=%.1024s", rank, code, text))
	return err
}

// aborts tells of the ranks of this pod that ask for the end of the job, and of those that the
// job is lost by and that may live on, until ctx ends.
func (m management) aborts(ctx context.Context, told func(rank, code int, lost bool)) error {
	conn, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing more is asked
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := fmt.Fprintln(conn, "cmd=outrigger_aborts lost=1"); err != nil {
		return fmt.Errorf("process management of the sidecar: %w", err)
	}
	in := bufio.NewReader(conn)
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("process management of the sidecar: %w", err)
		}
		var rank, code int
		if _, err := fmt.Sscanf(text, "cmd=aborts rank=%d code=%d", &rank, &code); err != nil || code < 1 || code > 255 {
			return fmt.Errorf("the sidecar says %q", strings.TrimSpace(text))
		}
		told(rank, code, strings.HasSuffix(strings.TrimSpace(text), " lost=1"))
	}
}

// fence waits for as long as the other pods take, and returns what all of them, with
// so many ranks in this one, have brought.
func (m management) fence(ctx context.Context, ranks int, own []byte) ([]byte, error) {
	_, all, err := m.together(ctx, fmt.Sprintf("cmd=outrigger_fence ranks=%d bytes=%d", ranks, len(own)), own)
	return all, err
}

// meet is the same for some of the pods (pmi.Meeting), with a number of this meeting alone.
func (m management) meet(ctx context.Context, wish []byte) (uint64, []byte, error) {
	return m.together(ctx, "cmd=outrigger_meet", wish)
}

// together brings something to a round of several pods.
func (m management) together(ctx context.Context, line string, own []byte) (uint64, []byte, error) {
	conn, err := m.dial(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = conn.Close() }() // one for each round: they are few
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(append([]byte(line+"\n"), own...)); err != nil {
		return 0, nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	in := bufio.NewReader(conn)
	text, err := in.ReadString('\n')
	if ctx.Err() != nil {
		return 0, nil, context.Cause(ctx)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	var n int64
	var number uint64
	_, fence := fmt.Sscanf(text, "cmd=fence_result rc=0 bytes=%d", &n)
	_, meeting := fmt.Sscanf(text, "cmd=meet_result rc=0 number=%d bytes=%d", &number, &n)
	if fence != nil && meeting != nil || n < 0 || n > frameMax {
		return 0, nil, fmt.Errorf("the sidecar says %q", strings.TrimSpace(text))
	}
	all, err := io.ReadAll(io.LimitReader(in, n))
	if err == nil && int64(len(all)) != n {
		err = io.ErrUnexpectedEOF
	}
	return number, all, err
}
