package harness

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/e2e/harness/control"
	"github.com/outrigger-hpc/outrigger/e2e/harness/keeper"
	"github.com/outrigger-hpc/outrigger/e2e/harness/pid1"
)

// nameVariable names the cluster that is meant, for machines with several.
const nameVariable = "OUTRIGGER_CLUSTER"

var (
	name = cmp.Or(os.Getenv(nameVariable), "outrigger-cluster")
	// Dir holds everything of the cluster. It is not below /run or /var/lib, of
	// which every node has its own.
	Dir = filepath.Join("/var/cache", filepath.Base(name))
	// lock is held by the keeper, so that the kernel releases it whatever
	// becomes of the cluster.
	lock = filepath.Join("/run/lock", filepath.Base(name)+".lock")
)

// keeperCommand is the word after pid1.Argument by which the program that calls
// Up becomes the cluster's keeper.
const keeperCommand = "as-keeper"

// Options say what cluster to bring up.
type Options struct {
	Nodes  int    // how many; 0: two
	Images string // the folder that hack/image wrote, with the image "probe"
}

// Up brings the machine's cluster up and leaves it running, below a process of
// its own. Progress goes to progress. The calling program must be able to start
// itself as pid1.Main wants.
func Up(ctx context.Context, options Options, progress io.Writer) (*Cluster, error) {
	if err := CheckMachine(); err != nil {
		return nil, err
	}
	bin, err := Programs(ctx)
	if err != nil {
		return nil, err
	}
	held, err := takeLock()
	if err != nil {
		return nil, err
	}
	defer held.Close() // the keeper has its own
	if err := removeLeftovers(); err != nil {
		return nil, err
	}
	public, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	defer public.Close()
	layout := &keeper.Layout{Dir: Dir, Bin: bin, CNI: cniPlugins, Public: public.Addr().String(), Nodes: options.Nodes}
	if layout.Nodes == 0 {
		layout.Nodes = 2
	}
	if err := useImages(layout, options.Images); err != nil {
		return nil, err
	}
	if err := layout.Write(); err != nil {
		return nil, err
	}
	if err := startKeeper(layout, public, held, progress); err != nil {
		return nil, errors.Join(err, halt())
	}
	c, err := Open(ctx)
	if err != nil {
		return nil, err
	}
	return c, c.settle(ctx, progress)
}

// takeLock takes the machine's lock for one cluster.
func takeLock() (*os.File, error) {
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("this machine has a cluster already; use it, or take it down with `make cluster-down`")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeLeftovers removes what a cluster leaves that nobody took down: its
// processes ended with its keeper, and so did its mounts and networks.
func removeLeftovers() error {
	if err := errors.Join(keeper.RemoveCgroups(Dir), os.RemoveAll(Dir)); err != nil {
		return fmt.Errorf("remove what an earlier cluster left: %w", err)
	}
	return nil
}

// startKeeper starts the keeper and waits until it says that the cluster is up.
func startKeeper(layout *keeper.Layout, public net.Listener, held *os.File, progress io.Writer) error {
	listener, err := public.(*net.TCPListener).File()
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	defer listener.Close()
	log, err := os.Create(filepath.Join(layout.Logs(), "keeper.log"))
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	defer log.Close()
	status, said, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	defer status.Close()
	cmd := pid1.Command(keeperCommand, layout.Dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{listener, said, held}
	err = cmd.Start()
	_ = said.Close() // the keeper's end is the only one now
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	if err := followStatus(status, progress, log.Name()); err != nil {
		return errors.Join(err, kill(cmd))
	}
	return cmd.Process.Release()
}

// followStatus passes the keeper's progress on until the cluster is up.
func followStatus(status io.Reader, progress io.Writer, log string) error {
	lines := bufio.NewScanner(status)
	for lines.Scan() {
		line := lines.Text()
		if line == keeper.StatusUp {
			return nil
		}
		if why, failed := strings.CutPrefix(line, keeper.StatusFailed); failed {
			return errors.New(why)
		}
		fmt.Fprintf(progress, "cluster: %s\n", line)
	}
	return fmt.Errorf("the cluster's keeper ended without a word; its log is %s", log)
}

func kill(cmd *exec.Cmd) error {
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end the keeper: %w", err)
	}
	_ = cmd.Wait() // it was killed, which Wait calls an error
	return nil
}

// asKeeper is the keeper's life, for the program that Up started: the arguments
// after keeperCommand, and the files that Up passed.
func asKeeper(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("keeper: the cluster starts this by itself")
	}
	file := os.NewFile(3, "API server's listener")
	public, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	_ = file.Close() // FileListener has its own
	for fd := 4; fd <= 5; fd++ {
		unix.CloseOnExec(fd) // the lock and the status are not for etcd
	}
	unix.CloseOnExec(3)
	status := os.NewFile(4, "status")
	return keeper.Run(ctx, args[0], public, status)
}

// Down ends the cluster, however far it came, and removes what it made. That
// none runs is no error.
func Down() error {
	if err := CheckMachine(); err != nil {
		return err
	}
	if err := halt(); err != nil {
		return err
	}
	held, err := takeLock()
	if err != nil {
		return err
	}
	defer held.Close()
	return removeLeftovers()
}

// halt kills the first process of the cluster's namespaces; the kernel then
// kills all others.
func halt() error {
	layout := keeper.Layout{Dir: Dir}
	pid, err := control.Pid(layout.Socket())
	if err != nil {
		return nil // nobody keeps a cluster
	}
	first, err := parentOf(pid)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(first, 0)
	if err != nil {
		return fmt.Errorf("end the cluster: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return fmt.Errorf("end the cluster: %w", err)
	}
	return waitEnded(fd)
}

// waitEnded waits until the process behind a pidfd, and so all of its namespace,
// has ended.
func waitEnded(fd int) error {
	for {
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("end the cluster: %w", err)
		case ended == 0:
			return errors.New("the cluster was killed and does not end: a program that entered a node is not collected by its parent outside; end that one")
		default:
			return nil
		}
	}
}

func parentOf(pid int) (int, error) {
	var parent int
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("end the cluster: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "PPid: %d", &parent); err == nil {
			return parent, nil
		}
	}
	return 0, fmt.Errorf("end the cluster: process %d has no parent", pid)
}
