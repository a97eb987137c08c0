// Package jobrun runs a job on this machine as a cluster would: with a sidecar and a
// launcher for each pod, a bootstrap document and certificates of the job's own, and the
// end of all processes at the first failure.
//
// Start prepares the job's directory, then starts the sidecars, then the launchers, which
// start the ranks. Wait waits for an outcome: all launchers have ended, a process has
// failed, or the context has ended. After a failure it asks the sidecars for its cause
// (consult), and podlife.Blame selects the failure that caused the others. end then stops
// launchers before sidecars.
package jobrun

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// Spec is the job to run.
type Spec struct {
	Name        string
	Ranks, Pods int
	Program     []string
	Env         []string
	ArenaBytes  int64 // 0: the default, limited by the memory of the machine
	Tuning      bootstrap.Tuning
	LogLevel    string // level of the sidecars' log messages that are printed; empty: errors only
	Prefix      bool
	Timeout     time.Duration // 0: none
	Grace       time.Duration // delay between SIGTERM and SIGKILL of ranks, when a person ends the job; 0: DefaultGrace
	Deadlock    Deadlock
	Dir         string   // the job's directory, which is kept at the end; "": a temporary one
	WorkDir     string   // working directory of the program; "": the directory of this process
	Trace       string   // file for a timeline of the job; "": none
	Stdin       *os.File // standard input of rank 0; nil: empty
	StdinFile   string   // instead of Stdin, opened by the launcher for each attempt
	MPI         string   // the program's MPI, as outrigger-launch names it; "": not given

	// Adopts means that this process has no children but the job's: it becomes the parent
	// of the processes left by a launcher that was killed, and kills them.
	Adopts bool
	// AtOnce, when it is closed, kills the remaining processes of a job that is ending. If
	// it is nil, they have their grace, unless Wait's context ends while a failed job ends.
	AtOnce <-chan struct{}
	// Notices are signals for each running rank, and not for processes that a rank has
	// started. It may be nil.
	Notices <-chan os.Signal

	// Container means that each rank stands for a container without a launcher, whose exit
	// code alone is known, as in a cluster with launchMode Container.
	Container bool

	// Document has the ranks of each of Pods pods and their tuning, for a job that is not
	// spread evenly; nil: it is made from the fields above. Local adds the values of this
	// machine.
	Document *bootstrap.Document
	// AsksForArena means that the job requests the document's arena size.
	AsksForArena bool
	// ByPod has the command of the ranks of each pod, instead of Program and Env. It may be
	// nil.
	ByPod []Command
}

// Command is a program with its arguments, and variables in addition to this process's.
type Command struct{ Program, Env []string }

// of returns the command of the ranks of a pod.
func (s *Spec) of(pod int) Command {
	if s.ByPod != nil {
		return s.ByPod[pod]
	}
	return Command{s.Program, s.Env}
}

// commands returns the commands of the pods: one for each or, if ByPod is nil, a single one for all.
func (s *Spec) commands() []Command {
	if s.ByPod != nil {
		return s.ByPod
	}
	return []Command{{s.Program, s.Env}}
}

// Check returns an error if the Spec is invalid, before anything is started.
func (s *Spec) Check() error {
	switch {
	case s.Ranks < 1 || s.Ranks > 4096:
		return fmt.Errorf("%d ranks: this machine can run 1 to 4096", s.Ranks)
	case s.Pods < 1 || s.Pods > s.Ranks:
		return fmt.Errorf("%d pods for %d ranks: want 1 to %d", s.Pods, s.Ranks, s.Ranks)
	case s.ByPod != nil && len(s.ByPod) != s.Pods:
		return fmt.Errorf("%d programs for %d pods", len(s.ByPod), s.Pods)
	}
	for _, c := range s.commands() {
		if len(c.Program) == 0 {
			return errors.New("no program to run")
		}
	}
	if err := new(slog.Level).UnmarshalText([]byte(s.LogLevel)); s.LogLevel != "" && err != nil {
		return fmt.Errorf("--sidecar-log %s: want debug, info, warn or error", s.LogLevel)
	}
	return nil
}

// certificateLife is how long a local job's certificates are valid, and therefore the
// longest run of a job.
const certificateLife = 30 * 24 * time.Hour

// dirPrefix begins the name of a temporary job directory.
const dirPrefix = "outrigger-job-"

// layout is a prepared job: its directory, its document, and the sockets on which its
// sidecars will listen.
type layout struct {
	dir     string
	keep    bool
	doc     *bootstrap.Document
	listens []*os.File // each pod's listening socket; closed when the sidecars have inherited them
	lock    *os.File   // lock of dir; nil: dir is temporary, and no other job has its name
}

func (l *layout) file(format string, a ...any) string {
	return filepath.Join(l.dir, fmt.Sprintf(format, a...))
}

func (l *layout) socket(pod int) string  { return l.file("pod%d/sidecar.sock", pod) }
func (l *layout) metrics(pod int) string { return l.file("pod%d/metrics.sock", pod) }
func (l *layout) words(pod int) string   { return l.file("pod%d/sidecar.words", pod) }
func (l *layout) flight(pod int) string  { return l.file("pod%d/flight", pod) }
func (l *layout) document() string       { return l.file("bootstrap.json") }

func (l *layout) closeListens() {
	for _, f := range l.listens {
		_ = f.Close() // the sidecar, if there is one, has its own descriptor
	}
	l.listens = nil
}

func (l *layout) remove() error {
	l.closeListens()
	if l.keep {
		return l.unlock()
	}
	return os.RemoveAll(l.dir)
}

// unlock releases the directory for another job.
func (l *layout) unlock() error {
	if l.lock == nil {
		return nil
	}
	return l.lock.Close()
}

// inherited returns own, and the files that all processes of the job keep open.
func (l *layout) inherited(own ...*os.File) []*os.File {
	if l.lock == nil {
		return own
	}
	return append(own, l.lock)
}

// prepare writes all files that the processes read.
func prepare(s *Spec, d *bootstrap.Document) (*layout, error) {
	l := &layout{dir: s.Dir, keep: s.Dir != "", doc: d}
	var err error
	if l.keep {
		if s.WorkDir != "" { // ranks use the path from WorkDir; otherwise it stays as short as given, because of the sockets
			if l.dir, err = filepath.Abs(l.dir); err != nil {
				return nil, fmt.Errorf("job directory: %w", err)
			}
		}
		if err = os.MkdirAll(l.dir, 0o700); err == nil {
			if l.lock, err = lockDir(l.dir, s.Name); err != nil {
				return nil, err
			}
		}
		for i := 0; err == nil && i < s.Pods; i++ { // files of an earlier job
			err = os.RemoveAll(l.file("pod%d", i))
		}
	} else {
		l.dir, err = os.MkdirTemp("", dirPrefix)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("job directory: %w", err), l.unlock())
	}
	if err := l.checkLength(s.Pods); err != nil {
		return nil, errors.Join(err, l.remove())
	}
	if err := l.write(s); err != nil {
		return nil, errors.Join(err, l.remove())
	}
	return l, nil
}

// socketPathMax is the longest path of a Unix socket: sun_path without its final zero
// (unix(7)).
const socketPathMax = 107

// checkLength returns an error if the directory's path is too long for its sockets: the
// kernel would report only "invalid argument".
func (l *layout) checkLength(pods int) error {
	longest := max(len(l.socket(pods-1)+names.LaunchSuffix), len(l.metrics(pods-1)))
	if longest <= socketPathMax {
		return nil
	}
	return fmt.Errorf("job directory: %s is too long for the paths of the sockets in it, by %d B: choose a shorter one with --dir or TMPDIR", l.dir, longest-socketPathMax)
}

func (l *layout) write(s *Spec) error {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	ports, err := l.listen(s.Pods)
	if err != nil {
		return err
	}
	l.doc = Local(l.doc, hex.EncodeToString(id[:]), l.dir, ports)
	if err := l.doc.Validate(); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(l.doc, "", "  ")
	if err != nil {
		return fmt.Errorf("bootstrap document: %w", err)
	}
	if err := os.WriteFile(l.document(), raw, 0o600); err != nil {
		return fmt.Errorf("bootstrap document: %w", err)
	}
	return l.writeKeys(s.Pods)
}

// document returns the job's document without the values of a machine.
func (s *Spec) document() *bootstrap.Document {
	if s.Document != nil {
		return s.Document
	}
	d := &bootstrap.Document{
		Version: bootstrap.Version, Job: bootstrap.Job{Name: s.Name}, Ranks: s.Ranks,
		Memory: bootstrap.Memory{ArenaBytes: s.ArenaBytes}, Tuning: s.Tuning,
	}
	first := 0
	for i := range s.Pods {
		n := s.Ranks/s.Pods + boolInt(i < s.Ranks%s.Pods)
		d.Pods = append(d.Pods, bootstrap.Pod{Name: fmt.Sprintf("pod-%d", i), FirstRank: first, Ranks: n})
		first += n
	}
	return d
}

// Local returns a job's document with the values of this machine: the job's id, its
// directory, and an address for each pod.
func Local(d *bootstrap.Document, id, dir string, addresses []string) *bootstrap.Document {
	own := *d
	own.Job.ID = id
	own.TLS = bootstrap.TLS{
		CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "pod%d.pem"), KeyFile: filepath.Join(dir, "pod%d.key"),
	}
	own.Pods = slices.Clone(d.Pods)
	for i := range own.Pods {
		own.Pods[i].Address = addresses[i]
	}
	return &own
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (l *layout) writeKeys(pods int) error {
	ca, err := pki.New(l.doc.Job.ID, certificateLife)
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.file("ca.pem"), ca.CA(), 0o600); err != nil {
		return fmt.Errorf("job authority: %w", err)
	}
	for i := range pods {
		leaf, err := ca.Leaf(i)
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(l.file("pod%d.pem", i), leaf.Cert, 0o600), os.WriteFile(l.file("pod%d.key", i), leaf.Key, 0o600),
			os.Mkdir(l.file("pod%d", i), 0o700)); err != nil {
			return fmt.Errorf("credentials of pod %d: %w", i, err)
		}
	}
	return nil
}

// listen opens a loopback address for each pod. Sidecars inherit the sockets: no other
// process can take an address meanwhile, and a process that dials early waits.
func (l *layout) listen(pods int) ([]string, error) {
	var list []string
	for range pods {
		h, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("address for a sidecar: %w", err)
		}
		f, err := h.(*net.TCPListener).File()
		list = append(list, h.Addr().String())
		if err := errors.Join(err, h.Close()); err != nil { // f stays open
			return nil, fmt.Errorf("address for a sidecar: %w", err)
		}
		l.listens = append(l.listens, f)
	}
	return list, nil
}

// companion finds one of Outrigger's programs in the directory of this one, or in PATH.
func companion(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if p := filepath.Join(filepath.Dir(self), name); isFile(p) {
			return p, nil
		}
	}
	p, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither in this program's directory nor in PATH: build it with `make build`", name)
	}
	return p, nil
}

func isFile(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.Mode().IsRegular()
}
