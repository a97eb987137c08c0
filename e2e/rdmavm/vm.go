// Package rdmavm runs programs in virtual machines that have RDMA: Debian's
// kernel under QEMU's emulation, with Soft-RoCE (rdma_rxe) devices. A single machine
// has its device on a pair of virtual cables; two machines are joined back to back.
// docs/rdma.md describes how to use the package, and what emulation can and cannot show.
//
// hack/rdmavm/packages downloads the packages of which a machine is made. The tests of
// this package have the build tag rdmavm.
package rdmavm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/job"
)

// Run configures one run of one machine, or of two joined machines.
type Run struct {
	Name     string        // name of the folder of the run's logs
	Programs []string      // files of the host that the commands need
	Commands [][]string    // command of each machine, for one or two machines
	Env      []string      // variables of all commands
	Limit    time.Duration // maximum run time of the commands; a machine has the time grace in addition, to start and to end
	// Counted makes the machine's clock count the instructions of its only processor: one
	// nanosecond per instruction, and idle time takes none. Times that are measured in the
	// machine then do not depend on the load of the host. It is for runs of one machine.
	Counted bool
	// TSC makes the machine's kernel trust the time-stamp counter of its processors, as on
	// present hardware. Otherwise, a program reads the clock by a system call and the emulated
	// chipset, which takes microseconds. An engine reads the clock in each turn; perftest
	// reads the counter itself, and never the clock.
	TSC bool
	// Modules are the sets of kernel modules that are loaded in addition.
	Modules []string
	// Device, if not nil, starts the simulation of a PCI device for each start of a machine, and
	// returns the socket by which QEMU accesses the device (x-pci-proxy-dev). It is for runs of
	// one machine.
	Device func() (*os.File, error)
	// IOMMU adds an IOMMU, which VFIO needs. It does not translate the accesses of Device, but
	// those of a device of QEMU's for teaching (edu), which is added too.
	IOMMU bool
}

// Outcome is the result of one machine.
type Outcome struct {
	job.Verdict
	Output  string // output of the command
	Console string // output of the kernel and of init
	Dir     string // folder with both outputs, and with the files that the command has kept
}

// grace is the time that a machine may take to start and to end, in addition to its command.
const grace = time.Minute

// errMachine is wrapped by the error for a machine that ended without a verdict.
var errMachine = errors.New("the virtual machine ended without saying how its command did")

// Do runs the machines until they are off. An error means that a machine did not work; the
// result of a machine's command is in its Outcome. If a processor was stuck, the machines are
// started once more.
func Do(ctx context.Context, r Run) ([]Outcome, error) {
	out, err := once(ctx, r)
	if errors.Is(err, errStuck) {
		fmt.Fprintf(os.Stderr, "%v\nrdmavm: %s is started once more\n", err, r.Name)
		out, err = once(ctx, r)
	}
	return out, err
}

func once(ctx context.Context, r Run) ([]Outcome, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "bin", "rdmavm")
	img, err := build(dir)
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(dir, "runs", fmt.Sprintf("%s-%s-%d", time.Now().Format("0102-150405"), r.Name, os.Getpid()))
	// The path of a socket has a maximum length, so its folder has a short path.
	sockets, err := os.MkdirTemp("", "rdmavm")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(sockets)
	ctx, cancel := context.WithTimeoutCause(ctx, r.Limit+grace, fmt.Errorf("it has run for %v", r.Limit+grace))
	defer cancel()
	outcomes, errs := make([]Outcome, len(r.Commands)), make([]error, len(r.Commands))
	var machines sync.WaitGroup
	for node := range r.Commands {
		machines.Go(func() {
			m := machine{img: img, run: &r, node: node, sockets: sockets, dir: filepath.Join(logs, fmt.Sprintf("node%d", node))}
			if outcomes[node], errs[node] = m.live(ctx); errs[node] != nil {
				errs[node] = fmt.Errorf("machine %d of %s: %w; its logs are in %s", node, r.Name, errs[node], m.dir)
				cancel() // the other machine would wait for the failed one
			}
		})
	}
	machines.Wait()
	return outcomes, errors.Join(errs...)
}

// repository returns the folder of go.mod.
func repository() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

type machine struct {
	img     image
	run     *Run
	node    int
	sockets string
	dir     string
}

func (m *machine) live(ctx context.Context) (o Outcome, err error) {
	o.Dir = m.dir
	share := filepath.Join(m.dir, "share")
	if err := m.fill(share); err != nil {
		return o, err
	}
	log, err := os.Create(filepath.Join(m.dir, "console.log"))
	if err != nil {
		return o, err
	}
	defer log.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", m.arguments(share)...)
	if m.run.Device != nil {
		socket, err := m.run.Device()
		if err != nil {
			return o, err
		}
		defer socket.Close()
		qemu.ExtraFiles = []*os.File{socket}
	}
	both := &console{to: log, stuck: func() { cancel(errStuck) }}
	qemu.Stdout, qemu.Stderr = both, both
	end := m.run.begin(qemu)
	if end == nil {
		end = qemu.Wait()
	}
	o.Console = read(log.Name())
	o.Output = read(filepath.Join(share, job.Output))
	b, err := os.ReadFile(filepath.Join(share, job.Result))
	if err == nil {
		err = json.Unmarshal(b, &o.Verdict)
	}
	if err != nil {
		return o, errors.Join(errMachine, end, context.Cause(ctx), tail(o.Console))
	}
	return o, nil
}

func read(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// tail returns the end of a log as an error.
func tail(log string) error {
	const most = 2000
	return errors.New("... " + strings.TrimSpace(log[max(0, len(log)-most):]))
}

// fill makes the folder that is shared with the machine.
func (m *machine) fill(share string) error {
	bin := filepath.Join(share, job.Programs)
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for _, p := range m.run.Programs {
		if err := copyFile(filepath.Join(bin, filepath.Base(p)), p); err != nil {
			return err
		}
	}
	limit := m.run.Limit
	if m.run.Counted { // the machine's clock jumps ahead while the machine waits for files of the host
		limit *= 1000
	}
	b, err := json.Marshal(job.Job{Node: m.node, Nodes: len(m.run.Commands), Command: m.run.Commands[m.node], Env: m.run.Env, Limit: limit, Modules: m.run.Modules})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(share, job.File), b, 0o644)
}

func copyFile(to, from string) error {
	from, err := filepath.EvalSymlinks(from) // the target of a symbolic link does not exist in the machine
	if err != nil {
		return err
	}
	// A hard link costs nothing.
	if err := os.Link(from, to); err == nil {
		return nil
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return replace(to, func(w io.Writer) error {
		f, ok := w.(*os.File)
		if ok {
			err = f.Chmod(0o755)
		}
		_, e := io.Copy(w, bytes.NewReader(content))
		return errors.Join(err, e)
	})
}

// oneMemory is the memory of a machine that is alone, in MiB.
const oneMemory = "1280"

// arguments returns the arguments of QEMU. The machine is emulated (TCG), which needs no
// hardware. The kernel does not check its timer (no_timer_check): on a busy host, no tick may
// arrive within the time of that check, and the kernel would panic.
func (m *machine) arguments(share string) []string {
	processors, memory := "2", oneMemory
	if len(m.run.Commands) > 1 {
		processors, memory = "1", "896"
	}
	accel := []string{"-accel", "tcg,thread=multi"}
	if m.run.Counted {
		processors, accel = "1", []string{"-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"}
	}
	options := "console=ttyS0 quiet panic=-1 mitigations=off nokaslr audit=0 net.ifnames=0 no_timer_check"
	if m.run.TSC {
		options += " clocksource=tsc tsc=reliable"
	}
	board, more := m.devices()
	if m.run.IOMMU {
		options += " intel_iommu=on"
	}
	args := append(accel,
		"-machine", board, "-cpu", "max,la57=off", "-m", memory, "-smp", processors,
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-fsdev", "local,id=share,security_model=none,path="+share, "-device", "virtio-9p-pci,fsdev=share,mount_tag=host",
		"-kernel", m.img.kernel, "-initrd", m.img.initrd,
		"-append", options,
	)
	args = append(args, more...)
	if len(m.run.Commands) > 1 {
		at := func(node int) string { return filepath.Join(m.sockets, fmt.Sprint(node)) }
		args = append(args,
			"-netdev", fmt.Sprintf("dgram,id=wire,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", at(m.node), at(1-m.node)),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=wire,mac=52:54:00:00:00:%02x,host_mtu=4200", m.node+1))
	}
	return args
}

// devices returns the kind of machine, and the arguments for the devices of the run. A simulated
// device accesses the machine's memory, which is therefore shared.
func (m *machine) devices() (board string, args []string) {
	board = "q35"
	if m.run.IOMMU {
		args = append(args, "-device", "intel-iommu,intremap=on,caching-mode=on", "-device", "edu")
		board += ",kernel-irqchip=split"
	}
	if m.run.Device != nil {
		board += ",memory-backend=ram"
		args = append(args, "-object", "memory-backend-memfd,id=ram,size="+oneMemory+"M,share=on",
			"-device", "x-pci-proxy-dev,id=proxy,fd=3") // the first of ExtraFiles
	}
	return board, args
}
