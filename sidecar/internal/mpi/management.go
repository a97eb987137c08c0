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

// management is the path of a socket of the sidecar's process management (package pmi),
// with the requests of a launcher.
type management string

// exchangeTimeout bounds one exchange with the sidecar, which answers from memory.
const exchangeTimeout = 10 * time.Second

// dial connects. The caller bounds the exchange.
func (m management) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: exchangeTimeout}
	conn, err := d.DialContext(ctx, "unix", string(m))
	if err != nil {
		return nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	return conn, nil
}

// query sends one request and returns the fields of its answer.
func (m management) query(ctx context.Context, line string) (map[string]string, error) {
	conn, err := m.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // no further request follows
	if err := conn.SetDeadline(time.Now().Add(exchangeTimeout)); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	return ask(conn, line, 1)
}

// ask sends a line and returns the fields of that many answers.
func ask(conn net.Conn, line string, answers int) (map[string]string, error) {
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	fields := map[string]string{}
	// The reader may buffer: no byte after the answers may be read, since the rank goes on
	// using the connection, but the sidecar sends nothing without a request.
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

// position is the position of a pod in the job.
type position struct {
	name       string
	pod, first int   // number of the pod, and its first rank
	layout     []int // number of ranks by pod
	machines   int   // number of machines of the pods, as far as their addresses show
}

// ranks returns the number of ranks of this pod.
func (p *position) ranks() int { return p.layout[p.pod] }

// layoutText formats the layout as the sidecar does.
func (p *position) layoutText() string {
	texts := make([]string, len(p.layout))
	for i, n := range p.layout {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

// world returns the number of ranks of the job.
func (p *position) world() int {
	n := 0
	for _, ranks := range p.layout {
		n += ranks
	}
	return n
}

// rankEnv returns the variables that the launcher of each MPI sets for a rank of this pod:
// programs and wrappers read them before MPI_Init, for example to choose a GPU. A script
// gets those of all families.
func (p *position) rankEnv(f Family, rank int) []string {
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

// position asks for the position of this pod.
func (m management) position(ctx context.Context) (position, error) {
	a, err := m.query(ctx, "cmd=outrigger_job")
	if err != nil {
		return position{}, err
	}
	p := position{name: a["name"]}
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

// rankResult is the sidecar's answer about a rank that has ended.
type rankResult struct {
	connected bool // it has exchanged data with the other ranks by PMI
	attached  bool
	vanished  bool
	loaded    bool // a process of its pod has loaded an MPI
}

// rankResult asks for the result of a rank.
func (m management) rankResult(ctx context.Context, rank int) (rankResult, error) {
	a, err := m.query(ctx, fmt.Sprintf("cmd=outrigger_rank rank=%d", rank))
	return rankResult{connected: a["init"] == "1", attached: a["attached"] == "1", vanished: a["vanished"] == "1", loaded: a["loaded"] == "1"}, err
}

// waitsFor asks whether ranks wait in MPI_Init for a rank that has ended without MPI: whether
// the answer is final, and which rank waits, or -1. met is a rank of this pod that waits by
// PMIx, or -1.
func (m management) waitsFor(ctx context.Context, rank, met int) (known bool, waits int, err error) {
	a, err := m.query(ctx, fmt.Sprintf("cmd=outrigger_idle rank=%d met=%d", rank, met))
	if err != nil {
		return false, -1, err
	}
	waits, err = strconv.Atoi(a["waits"])
	return a["known"] == "1", waits, err
}

// reportFailed reports that a rank has ended with a code other than 0.
func (m management) reportFailed(ctx context.Context, rank, code int) error {
	_, err := m.query(ctx, fmt.Sprintf("cmd=outrigger_failed rank=%d code=%d", rank, code))
	return err
}

// reportAbort reports that a rank requests the end of the job by other means than PMI-1.
func (m management) reportAbort(ctx context.Context, rank int, code int32, text string) error {
	text = strings.Join(strings.Fields(text), " ")
	_, err := m.query(ctx, fmt.Sprintf("cmd=outrigger_abort rank=%d exitcode=%d message=%.1024s", rank, code, text))
	return err
}

// watchAborts calls aborted for the ranks of this pod that request the end of the job, and for
// those because of which the job has failed and that may live on, until ctx ends.
func (m management) watchAborts(ctx context.Context, aborted func(rank, code int, lost bool)) error {
	conn, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // no further request follows
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
			return fmt.Errorf("unexpected answer of the sidecar: %q", strings.TrimSpace(text))
		}
		aborted(rank, code, strings.HasSuffix(strings.TrimSpace(text), " lost=1"))
	}
}

// fence exchanges bytes with all other pods, and waits for as long as they take. ranks is
// the number of ranks in this pod.
func (m management) fence(ctx context.Context, ranks int, own []byte) ([]byte, error) {
	_, all, err := m.exchange(ctx, fmt.Sprintf("cmd=outrigger_fence ranks=%d bytes=%d", ranks, len(own)), own)
	return all, err
}

// meet exchanges bytes with some of the pods (pmi.Meeting), and returns the number of the
// meeting.
func (m management) meet(ctx context.Context, setting []byte) (uint64, []byte, error) {
	return m.exchange(ctx, "cmd=outrigger_meet", setting)
}

// exchange contributes bytes to a round of several pods.
func (m management) exchange(ctx context.Context, line string, own []byte) (uint64, []byte, error) {
	conn, err := m.dial(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = conn.Close() }() // rounds are few: each has its own connection
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
		return 0, nil, fmt.Errorf("unexpected answer of the sidecar: %q", strings.TrimSpace(text))
	}
	all, err := io.ReadAll(io.LimitReader(in, n))
	if err == nil && int64(len(all)) != n {
		err = io.ErrUnexpectedEOF
	}
	return number, all, err
}
