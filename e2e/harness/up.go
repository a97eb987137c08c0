package harness

import (
	"bufio"
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

	"github.com/outrigger-hpc/outrigger/e2e/harness/keeper"
	"github.com/outrigger-hpc/outrigger/e2e/harness/pid1"
)

// keeperCommand is the argument after pid1.Argument with which Up starts the calling program once
// more, as the keeper of the cluster.
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
	p, err := here()
	if err != nil {
		return nil, err
	}
	held, err := p.take()
	if err != nil {
		return nil, err
	}
	defer held.Close() // the keeper has its own
	if err := p.removeLeftovers(); err != nil {
		return nil, err
	}
	public, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	defer public.Close()
	layout := &keeper.Layout{Dir: p.dir, Bin: bin, CNI: cniPlugins, Public: public.Addr().String(), Nodes: options.Nodes}
	if layout.Nodes == 0 {
		layout.Nodes = 2
	}
	if err := useImages(layout, options.Images); err != nil {
		return nil, err
	}
	if err := layout.Write(); err != nil {
		return nil, err
	}
	if err := startKeeper(ctx, layout, public, held, progress); err != nil {
		return nil, err
	}
	c, err := Open(ctx)
	if err != nil {
		return nil, err
	}
	return c, c.settle(ctx, progress)
}

// startKeeper starts the keeper and waits until it says that the cluster is up.
// When it does not, or ctx ends before, nothing of it stays.
func startKeeper(ctx context.Context, layout *keeper.Layout, public net.Listener, held *os.File, progress io.Writer) error {
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
	// Ends the wait below.
	defer context.AfterFunc(ctx, func() { _ = status.Close() })()
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
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", ctx.Err())
		}
		return errors.Join(err, kill(cmd))
	}
	return cmd.Process.Release()
}

// followStatus prints the keeper's progress until the cluster is up.
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
