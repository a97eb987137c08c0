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

// pmix is the PMIx server of this pod's ranks: a child process of the launcher
// (clientlib/c/pmix), which ends with it. The sidecar carries its data to the other pods.
type pmix struct {
	program         string // path of the server
	sidecar         management
	library         string                                                // the program's libmpi; "": the server searches it, or a variable names it
	severalPrograms bool                                                  // a rank may run several programs in succession
	printText       func(rank int, out bool, text string, printed func()) // prints texts that a rank prints by PMIx; nil: they are dropped

	begin  sync.Once
	ranks  int // number of ranks of this pod
	link   *os.File
	folder *folder       // directory of the server
	ready  chan struct{} // closed when the ranks have their variables, or never will

	mu        sync.Mutex
	vars      map[int][]string
	connected map[int]int  // how often each rank's process has connected to the PMIx server
	over      map[int]bool // ranks whose processes have ended
	err       error
	unfit     error // why the container cannot run the server at all; nil: unknown, or it can

	answered bool // the server has sent a frame; owned by listen
	printed  lastLine
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
		return p.setUnfit(fmt.Errorf("%s, by which the ranks of Open MPI find each other, cannot start: %w", pmixFile, err))
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(ends[1]), "pmix")
	defer func() { _ = theirs.Close() }() // the server has a duplicate
	p.link = os.NewFile(uintptr(ends[0]), "pmix")
	cmd := exec.Command(p.program, job.name, strconv.Itoa(job.pod), job.layoutText(), p.folder.path) //nolint:gosec // installed with this program
	printed, err := p.printed.open()
	if err != nil {
		return errors.Join(err, p.link.Close())
	}
	defer func() { _ = printed.Close() }() // the server has its own
	cmd.Stderr = printed
	cmd.Env = append(os.Environ(), p.storeEnv()...)
	if p.library != "" {
		cmd.Env = append(cmd.Env, names.EnvLibMPI+"="+p.library)
	}
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		if _, there := os.Stat(p.program); there == nil { // the image is unfit, and not the installation
			err = p.setUnfitImage(fmt.Sprintf("%v (it needs glibc and its dynamic loader)", err))
		}
		return errors.Join(err, p.link.Close())
	}
	go p.listen()
	return nil
}

// setUnfitImage records and returns why the image cannot run the server.
func (p *pmix) setUnfitImage(last string) error {
	return p.setUnfit(fmt.Errorf("%s, by which the ranks of Open MPI find each other, cannot start in this image: %s; docs/mpi.md lists the libraries that an image needs", pmixFile, last))
}

func (p *pmix) setUnfit(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unfit = err
	return err
}

// unfitError returns why the image cannot run the server, or nil.
func (p *pmix) unfitError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unfit
}

// job asks the sidecar for the ranks of the job.
func (p *pmix) job() (position, error) {
	job, err := p.sidecar.position(context.Background())
	if err == nil {
		p.ranks = job.ranks()
	}
	return job, err
}

// setError records the end of the server: ranks get no variables, and their fences no answer.
func (p *pmix) setError(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.releaseRanks()
}

// releaseRanks lets ranks start that wait for their variables. p.mu is held.
func (p *pmix) releaseRanks() {
	select {
	case <-p.ready:
	default:
		close(p.ready)
	}
}

// listen handles the server's frames until it ends.
func (p *pmix) listen() {
	in := bufio.NewReader(p.link)
	for {
		kind, body, err := readFrame(in)
		if err == nil {
			p.answered = true
			err = p.handle(kind, body)
		}
		if err != nil {
			if last := p.printed.wait(); !p.answered && last != "" { // the dynamic loader has printed the reason
				err = p.setUnfitImage(last)
			}
			p.setError(err)
			_ = p.link.Close() // the server ends
			return
		}
	}
}

var errFrame = errors.New("invalid frame of the PMIx server")

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

func (p *pmix) handle(kind byte, body []byte) error {
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
			go p.sidecar.reportOver(context.Background(), missed, true) //nolint:errcheck // without it the ranks wait
		}
	case kind == frameAbort && number >= 0 && len(body) >= 8:
		go p.abort(number, body) // concurrently, as a fence
	case kind == frameText && number >= 0 && len(body) >= 8: // the rank waits for the answer, and may abort then
		printed := func() { p.sendFrame(framePrinted, body[:4]) }
		if p.printText == nil || len(body) == 8 {
			printed()
			return nil
		}
		p.printText(number, body[4] == 1, string(body[8:]), printed)
	case kind == frameReady:
		p.mu.Lock()
		p.releaseRanks()
		p.mu.Unlock()
	case kind == frameFence:
		go p.fence(body) // the server sends other frames in the meantime
	case kind == frameMeet && number >= 0:
		go p.meet(body[:4], body[4:])
	case kind == frameError:
		return fmt.Errorf("PMIx: %s", body)
	default:
		return fmt.Errorf("%w: %q", errFrame, kind)
	}
	return nil
}

// fence exchanges the bytes of this pod's ranks with the other pods.
func (p *pmix) fence(own []byte) {
	all, err := p.sidecar.fence(context.Background(), p.ranks, own)
	kind := byte(frameGathered)
	if err != nil {
		fmt.Fprintf(os.Stderr, "outrigger-launch: the ranks of this pod cannot meet the others: %v\n", err)
		kind, all = frameFailed, []byte(err.Error())
	}
	p.sendFrame(kind, all)
}

// meet exchanges the bytes with some of the pods; id is the server's number of the request.
func (p *pmix) meet(id, setting []byte) {
	number, all, err := p.sidecar.meet(context.Background(), setting)
	if err != nil {
		fmt.Fprintf(os.Stderr, "outrigger-launch: ranks of this pod cannot meet those of others: %v\n", err)
		p.sendFrame(frameUnmet, id)
		return
	}
	p.sendFrame(frameMet, slices.Concat(id, binary.LittleEndian.AppendUint64(nil, number), all))
}

// abort reports the abort to the sidecar before the rank that has requested it may go on.
func (p *pmix) abort(rank int, body []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	if err := p.sidecar.reportAbort(ctx, rank, int32(binary.LittleEndian.Uint32(body[4:])), string(body[8:])); err != nil {
		fmt.Fprintf(os.Stderr, "outrigger-launch: rank %d aborts the job: %v\n", rank, err)
	}
	p.sendFrame(frameAborted, body[:4])
}

// sendFrame sends a frame to the server.
func (p *pmix) sendFrame(kind byte, body []byte) {
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	frame = append(append(frame, kind), body...)
	_, _ = p.link.Write(frame) // listen notices that the server has ended
}

// variables starts the server, waits until it is ready and returns the variables by which a
// rank finds it. A server that cannot be started is no error yet: Open MPI 4.1 does not
// need it, and a script may run no MPI at all.
func (p *pmix) variables(ctx context.Context, rank int) []string {
	p.begin.Do(func() {
		if err := p.start(); err != nil {
			p.setError(err)
		}
	})
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	select {
	case <-p.ready:
	case <-ctx.Done():
		p.setError(errors.New("PMIx: the server has not come up"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.vars[rank] == nil {
		return nil
	}
	return slices.Concat(p.vars[rank], sharing(p.folder.path), p.storeEnv())
}

// storeVariable selects where libpmix stores the data for the ranks.
const storeVariable = "PMIX_MCA_gds"

// storeEnv returns the variables of server and ranks if a rank may run several programs. The
// memory that libpmix 4 shares with ranks serves one process of each rank: the next process
// finds no data of its job, and Open MPI 4.1 fails in MPI_Init. The hash store serves each
// process.
func (p *pmix) storeEnv() []string {
	if !p.severalPrograms || os.Getenv(storeVariable) != "" {
		return nil
	}
	return []string{storeVariable + "=hash"}
}

// close removes the server's directory. The server itself ends with this process, or with
// the ranks' orphans. p may be nil.
func (p *pmix) close() error {
	if p == nil || p.folder == nil {
		return nil
	}
	return p.folder.remove()
}

// hasConnected reports whether a rank has connected. p may be nil.
func (p *pmix) hasConnected(rank int) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connected[rank] > 0
}

// missed returns a rank that has ended and has connected less often than the given one, or
// -1. p.mu is held.
func (p *pmix) missed(number int) int {
	for rank := range p.over {
		if p.connected[rank] < p.connected[number] {
			return rank
		}
	}
	return -1
}

// noteEnded records that the process of a rank has ended, and reports whether another rank
// is in a program that the rank has not run. p may be nil.
func (p *pmix) noteEnded(rank int) (missed bool) {
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

// otherConnected returns another rank that has connected, or -1. p may be nil.
func (p *pmix) otherConnected(rank int) int {
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

// serverError returns why the server on which a rank relied has ended or could not start,
// or nil if it runs or the rank never had it. p may be nil.
func (p *pmix) serverError(rank int) error {
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

// errorSuffix returns a text about the server's fault that can be appended to another one.
// p may be nil.
func (p *pmix) errorSuffix() string {
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
