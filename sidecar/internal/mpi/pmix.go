package mpi

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// pmix is the PMIx server of this pod's ranks: a process beside the launcher
// (clientlib/c/pmix), which ends with it. What it has to tell other pods goes
// through the sidecar.
type pmix struct {
	program string // the server's
	sidecar management
	library string                                                // the program's libmpi; "": the server finds it, or is told
	again   bool                                                  // a rank may run several programs, one after the other
	say     func(rank int, out bool, text string, printed func()) // prints what a rank prints by PMIx; nil: it is dropped

	begin  sync.Once
	ranks  int // of this pod
	link   *os.File
	folder *folder       // of its own
	ready  chan struct{} // closed when the ranks have their variables, or never will

	mu        sync.Mutex
	vars      map[int][]string
	connected map[int]int  // by rank: how often
	over      map[int]bool // ranks whose processes have ended
	err       error
	unfit     error // why the container cannot run the server at all; nil: it can, as far as is known

	heard   bool // the server has said something; owned by listen
	printed lastLine
}

// Kinds of frames: clientlib/c/pmix/pmix.h.
const (
	frameEnv       = 'E'
	frameReady     = 'R'
	frameError     = 'X'
	frameConnected = 'C'
	frameFence     = 'F'
	frameAbort     = 'A'
	frameAborted   = 'a'
	frameGathered  = 'G'
	frameFailed    = 'N'
	frameMeet      = 'M'
	frameMet       = 'm'
	frameUnmet     = 'n'
	frameText      = 'T'
	framePrinted   = 't'

	frameMax = 1 << 30
)

func newPMIx(program string, sidecar management) *pmix {
	return &pmix{program: program, sidecar: sidecar, ready: make(chan struct{}), vars: map[int][]string{}, connected: map[int]int{}, over: map[int]bool{}}
}

// start starts the server.
func (p *pmix) start() error {
	job, err := p.job()
	if err != nil {
		return err
	}
	if p.folder, err = sharedFolder(prefixPMIx, job.here()); err != nil {
		return p.unfitBy(fmt.Errorf("%s, by which the ranks of Open MPI find each other, cannot start: %w", pmixFile, err))
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(ends[1]), "pmix")
	defer func() { _ = theirs.Close() }() // the server has its own
	p.link = os.NewFile(uintptr(ends[0]), "pmix")
	cmd := exec.Command(p.program, job.name, strconv.Itoa(job.pod), job.layoutText(), p.folder.path) //nolint:gosec // beside this program
	printed, err := p.printed.begin()
	if err != nil {
		return errors.Join(err, p.link.Close())
	}
	defer func() { _ = printed.Close() }() // the server has its own
	cmd.Stderr = printed
	cmd.Env = append(os.Environ(), p.stored()...)
	if p.library != "" {
		cmd.Env = append(cmd.Env, names.EnvLibMPI+"="+p.library)
	}
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		if _, there := os.Stat(p.program); there == nil { // it is an image's fault, and not an installation's
			err = p.cannot(fmt.Sprintf("%v (it needs glibc and its dynamic loader)", err))
		}
		return errors.Join(err, p.link.Close())
	}
	go p.listen()
	return nil
}

// cannot notes that the image cannot run the server, and returns why.
func (p *pmix) cannot(last string) error {
	return p.unfitBy(fmt.Errorf("%s, by which the ranks of Open MPI find each other, cannot start in this image: %s; docs/mpi.md lists the libraries that an image needs", pmixFile, last))
}

func (p *pmix) unfitBy(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unfit = err
	return err
}

// fitness is why the image cannot run the server; nil: it can, as far as is known.
func (p *pmix) fitness() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unfit
}

// job asks the sidecar which ranks there are.
func (p *pmix) job() (place, error) {
	job, err := p.sidecar.place(context.Background())
	if err == nil {
		p.ranks = job.ranks()
	}
	return job, err
}

// end gives up: ranks get no variables, and their fences no answer.
func (p *pmix) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.release()
}

// release lets ranks start that wait for their variables. p.mu is held.
func (p *pmix) release() {
	select {
	case <-p.ready:
	default:
		close(p.ready)
	}
}

// listen hears the server until it ends.
func (p *pmix) listen() {
	in := bufio.NewReader(p.link)
	for {
		kind, body, err := readFrame(in)
		if err == nil {
			p.heard = true
			err = p.hear(kind, body)
		}
		if err != nil {
			if last := p.printed.wait(); !p.heard && last != "" { // the loader of programs has said it
				err = p.cannot(last)
			}
			p.end(err)
			_ = p.link.Close() // the server ends
			return
		}
	}
}

var errFrame = errors.New("the PMIx server says what cannot be meant")

func readFrame(in io.Reader) (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, nil, fmt.Errorf("the PMIx server has ended: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > frameMax {
		return 0, nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	body, err := io.ReadAll(io.LimitReader(in, int64(n)))
	if err == nil && len(body) != int(n) {
		err = io.ErrUnexpectedEOF
	}
	return head[4], body, err
}

func (p *pmix) hear(kind byte, body []byte) error {
	number := -1
	if len(body) >= 4 {
		number = int(binary.LittleEndian.Uint32(body))
	}
	switch {
	case kind == frameEnv && number >= 0:
		p.mu.Lock()
		p.vars[number] = strings.Split(strings.TrimSuffix(string(body[4:]), "\x00"), "\x00")
		p.mu.Unlock()
	case kind == frameConnected && number >= 0:
		p.mu.Lock()
		p.connected[number]++
		missed := p.missed(number)
		p.mu.Unlock()
		if missed >= 0 {
			go p.sidecar.over(context.Background(), missed, true) //nolint:errcheck // without it the ranks wait
		}
	case kind == frameAbort && number >= 0 && len(body) >= 8:
		go p.abort(number, body) // as a fence
	case kind == frameText && number >= 0 && len(body) >= 8: // before the rank may abort
		printed := func() { p.tell(framePrinted, body[:4]) }
		if p.say == nil || len(body) == 8 {
			printed()
			return nil
		}
		p.say(number, body[4] == 1, string(body[8:]), printed)
	case kind == frameReady:
		p.mu.Lock()
		p.release()
		p.mu.Unlock()
	case kind == frameFence:
		go p.fence(body) // the server speaks meanwhile
	case kind == frameMeet && number >= 0:
		go p.meet(body[:4], body[4:])
	case kind == frameError:
		return fmt.Errorf("PMIx: %s", body)
	default:
		return fmt.Errorf("%w: %q", errFrame, kind)
	}
	return nil
}

// fence carries what this pod has put to the others, and theirs back.
func (p *pmix) fence(own []byte) {
	all, err := p.sidecar.fence(context.Background(), p.ranks, own)
	kind := byte(frameGathered)
	if err != nil {
		fmt.Fprintf(os.Stderr, "outrigger-launch: the ranks of this pod cannot meet the others: %v\n", err)
		kind, all = frameFailed, []byte(err.Error())
	}
	p.tell(kind, all)
}

// meet is the same for some of the pods; id is the server's.
func (p *pmix) meet(id, wish []byte) {
	number, all, err := p.sidecar.meet(context.Background(), wish)
	if err != nil {
		fmt.Fprintf(os.Stderr, "outrigger-launch: ranks of this pod cannot meet those of others: %v\n", err)
		p.tell(frameUnmet, id)
		return
	}
	p.tell(frameMet, slices.Concat(id, binary.LittleEndian.AppendUint64(nil, number), all))
}

// abort tells the sidecar, before the rank that has asked for it may go on.
func (p *pmix) abort(rank int, body []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), tellPatience)
	defer cancel()
	if err := p.sidecar.abort(ctx, rank, int32(binary.LittleEndian.Uint32(body[4:])), string(body[8:])); err != nil {
		fmt.Fprintf(os.Stderr, "outrigger-launch: rank %d aborts the job: %v\n", rank, err)
	}
	p.tell(frameAborted, body[:4])
}

// tell sends the server a frame.
func (p *pmix) tell(kind byte, body []byte) {
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	frame = append(append(frame, kind), body...)
	_, _ = p.link.Write(frame) // a server that has ended is found by listen
}

// variables starts the server, waits until it is up and returns what a rank needs
// to find it. A server that cannot be started is no error yet: an Open MPI of the
// 4.1 series does without, and a script may run no MPI at all.
func (p *pmix) variables(ctx context.Context, rank int) []string {
	p.begin.Do(func() {
		if err := p.start(); err != nil {
			p.end(err)
		}
	})
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-p.ready:
	case <-ctx.Done():
		p.end(errors.New("PMIx: the server has not come up"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.vars[rank] == nil {
		return nil
	}
	return slices.Concat(p.vars[rank], sharing(p.folder.path), p.stored())
}

// storeVariable chooses where libpmix keeps what it tells the ranks.
const storeVariable = "PMIX_MCA_gds"

// stored is what server and ranks need where a rank may run several programs. The memory that
// libpmix 4 shares with ranks serves one process of each: the next one finds no data of its job,
// and Open MPI 4.1 fails in MPI_Init. From its hash store each process has what it asks for.
func (p *pmix) stored() []string {
	if !p.again || os.Getenv(storeVariable) != "" {
		return nil
	}
	return []string{storeVariable + "=hash"}
}

// close removes the server's folder. The server itself ends with this process, or
// with the ranks' orphans. p may be nil.
func (p *pmix) close() error {
	if p == nil || p.folder == nil {
		return nil
	}
	return p.folder.remove()
}

// met reports whether a rank has connected. p may be nil.
func (p *pmix) met(rank int) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connected[rank] > 0
}

// missed is a rank that has ended and that has connected less often than another one; -1: none.
// p.mu is held.
func (p *pmix) missed(number int) int {
	for rank := range p.over {
		if p.connected[rank] < p.connected[number] {
			return rank
		}
	}
	return -1
}

// ends notes that the process of a rank has ended, and reports whether another one is in a
// program that the rank has not run. p may be nil.
func (p *pmix) ends(rank int) (missed bool) {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over[rank] = true
	for _, n := range p.connected {
		missed = missed || n > p.connected[rank]
	}
	return missed
}

// metBeside is a rank other than this one that has connected; -1: none. p may be nil.
func (p *pmix) metBeside(rank int) int {
	if p == nil {
		return -1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for other := range p.connected {
		if other != rank {
			return other
		}
	}
	return -1
}

// lost says why the server has ended on which a rank relied, or could not start; nil: it is
// there, or the rank never had it. p may be nil.
func (p *pmix) lost(rank int) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.vars[rank] == nil {
		return p.unfit
	}
	return p.err
}

// why says what is wrong with the server, to be put behind another sentence. p
// may be nil.
func (p *pmix) why() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return ""
	}
	return "; " + p.err.Error()
}
