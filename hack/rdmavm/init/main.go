// init is the first and only process that a virtual machine of e2e/rdmavm starts
// by itself: it loads the kernel's modules, makes the RDMA device, runs the
// command of its job, writes how it ended and turns the machine off.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/job"
)

func main() {
	say("up")
	v := job.Verdict{Status: -1}
	if err := live(&v); err != nil {
		v.Cause = err.Error()
	}
	say(fmt.Sprintf("over: status %d %s", v.Status, v.Cause))
	if b, err := json.Marshal(v); err == nil {
		if err := os.WriteFile(filepath.Join(job.Host, job.Result), b, 0o644); err != nil {
			say(err.Error())
		}
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		say(err.Error()) // the kernel then panics, which also ends the machine
	}
}

var begun = time.Now()

func say(what string) { fmt.Printf("init [%v] %s\n", time.Since(begun).Round(time.Millisecond), what) }

func live(v *job.Verdict) error {
	if err := errors.Join(mounts(), load("list")); err != nil {
		return err
	}
	if err := unix.Mount("host", job.Host, "9p", 0, "trans=virtio,version=9p2000.L,msize=524288,cache=none"); err != nil {
		return fmt.Errorf("mounting the shared folder: %w", err)
	}
	var j job.Job
	b, err := os.ReadFile(filepath.Join(job.Host, job.File))
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	if err != nil {
		return fmt.Errorf("the job: %w", err)
	}
	for _, set := range j.Modules {
		if err := load(set); err != nil {
			return err
		}
	}
	if err := errors.Join(programs(), network(&j)); err != nil {
		return err
	}
	return perform(&j, v)
}

func mounts() error {
	if err := errors.Join(os.Setenv("PATH", "/usr/local/bin:/usr/bin"), os.Setenv("HOME", "/root"), os.Setenv("TMPDIR", "/tmp")); err != nil {
		return err
	}
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/dev/shm"}, {"devpts", "/dev/pts"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		// The kernel may have mounted /dev by itself.
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	return nil
}

// load loads the modules of a list. It ignores a module that this processor cannot use, such as
// an accelerated checksum; another module replaces it.
func load(name string) error {
	list, err := os.ReadFile("/modules/" + name)
	if err != nil {
		return err
	}
	for _, m := range strings.Fields(string(list)) {
		f, err := os.Open("/modules/" + m + ".ko")
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close() // the file was only read
		switch {
		case errors.Is(err, unix.ENODEV):
			say("no use for module " + m)
		case err != nil && !errors.Is(err, unix.EEXIST):
			return fmt.Errorf("module %s: %w", m, err)
		}
	}
	return nil
}

// programs copies the programs of the test into the machine, because reading the pages of a
// program over the shared folder is slow.
func programs() error {
	const to = "/usr/local/bin"
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(job.Host, job.Programs)); err != nil {
		return nil // the test has no programs
	}
	return os.CopyFS(to, os.DirFS(filepath.Join(job.Host, job.Programs)))
}

// network brings the interfaces up and makes the device on one of them.
func network(j *job.Job) error {
	const mtu = "4200" // room for RDMA packets of 4 KiB
	device, steps := "eth0", [][]string{{"ip", "link", "set", "lo", "up"}}
	if j.Nodes == 1 {
		device = "v0"
		steps = append(steps, []string{"ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"}, []string{"ip", "link", "set", "v1", "mtu", mtu, "up"})
	}
	steps = append(steps,
		[]string{"ip", "addr", "add", job.Address(j.Node) + "/24", "dev", device},
		[]string{"ip", "link", "set", device, "mtu", mtu, "up"},
		[]string{"rdma", "link", "add", job.Device, "type", "rxe", "netdev", device})
	for _, s := range steps {
		if said, err := exec.Command(s[0], s[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(s, " "), err, said)
		}
	}
	return nil
}

func perform(j *job.Job, v *job.Verdict) error {
	out, err := os.Create(filepath.Join(job.Host, job.Output))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := os.MkdirAll(filepath.Join(job.Host, job.Kept), 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.Limit)
	defer cancel()
	c := exec.CommandContext(ctx, j.Command[0], j.Command[1:]...)
	c.Env = append(os.Environ(), append(j.Env, fmt.Sprintf("%s=%d", job.EnvNode, j.Node))...)
	c.Stdout, c.Stderr, c.Dir, c.WaitDelay = out, out, "/tmp", time.Second
	say("running " + strings.Join(j.Command, " "))
	err = c.Run()
	v.Status = c.ProcessState.ExitCode()
	if ctx.Err() != nil {
		return fmt.Errorf("it did not end within %v", j.Limit)
	}
	return err
}
