// pod runs in a virtual machine of a test of jobs. It executes the steps of a plan; in each
// step of a job, it starts the pod's sidecar and ranks.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/job"
	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/plan"
)

func main() {
	do := run
	if len(os.Args) > 1 && os.Args[1] == plan.Both {
		do = both
	}
	if err := do(); err != nil {
		fmt.Println("pod:", err)
		os.Exit(1)
	}
}

// both runs the two pods of a plan in one machine, each in a process of this program. The
// output of the second pod is written to a file.
func both() error {
	said, err := os.Create(filepath.Join(job.Host, job.Kept, "pod1.log"))
	if err != nil {
		return err
	}
	defer said.Close()
	var pods [2]*exec.Cmd
	for node, out := range []*os.File{os.Stdout, said} {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", job.EnvNode, node), together+"=1")
		c.Stdout, c.Stderr = out, out
		if err := c.Start(); err != nil {
			return err
		}
		pods[node] = c
	}
	return errors.Join(pods[0].Wait(), pods[1].Wait())
}

// together is the variable that is set if the other pod is in the same machine.
const together = "RDMAVM_TOGETHER"

const programs = "/usr/local/bin"

func run() error {
	node, err := strconv.Atoi(os.Getenv(job.EnvNode))
	if err != nil {
		return fmt.Errorf("$%s: %w", job.EnvNode, err)
	}
	var steps []plan.Step
	b, err := os.ReadFile(filepath.Join(programs, plan.File))
	if err == nil {
		err = json.Unmarshal(b, &steps)
	}
	if err != nil {
		return fmt.Errorf("the plan: %w", err)
	}
	for i := range steps {
		s := &step{Step: steps[i]}
		fmt.Printf("== step %s\n", s.Name)
		begun, before := time.Now(), counters()
		do := s.job
		if s.Commands != nil {
			do = s.command
		}
		if err := do(node, i); err != nil {
			return fmt.Errorf("step %s: %w", s.Name, err)
		}
		fmt.Printf("== step %s: ok, %v; counters of %s: %s\n", s.Name, time.Since(begun).Round(time.Millisecond), job.Device, moved(before, counters()))
	}
	return nil
}

// counters returns the packet counters of the device.
func counters() map[string]uint64 {
	all := map[string]uint64{}
	files, _ := filepath.Glob("/sys/class/infiniband/" + job.Device + "/ports/1/hw_counters/*") // Glob fails only for an invalid pattern
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the counter may not exist any more
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
			all[filepath.Base(f)] = n
		}
	}
	return all
}

func moved(before, after map[string]uint64) string {
	var list []string
	for _, name := range []string{"sent_pkts", "rcvd_pkts", "send_err", "retry_exceeded_err", "completer_retry_err", "rcvd_rnr_err", "send_rnr_err", "out_of_seq_request", "rcvd_seq_err", "duplicate_request"} {
		if n := after[name] - before[name]; n != 0 {
			list = append(list, fmt.Sprintf("%s +%d", name, n))
		}
	}
	return strings.Join(list, ", ")
}

// patience is the maximum time of a wait that does not depend on the length of the step.
const patience = 30 * time.Second

func (s *step) command(node, _ int) error {
	line := s.Commands[node]
	for end := time.Now().Add(patience); ; {
		c := exec.Command(line[0], line[1:]...)
		said, err := c.CombinedOutput()
		if err == nil {
			fmt.Printf("%s\n", said)
			return nil
		}
		if node == 0 || time.Now().After(end) {
			return fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, said)
		}
		time.Sleep(200 * time.Millisecond) // the command of the other machine is not running yet
	}
}

// step is a step of a plan, with its state while it runs.
type step struct {
	plan.Step
	sidecar *exec.Cmd
	log     string
	control string // path of the sidecar's socket for reports, metrics and drills
	unread  []byte // the last line of the sidecar's log, if that line is not complete
}

func (s *step) job(node, number int) (err error) {
	dir, name := fmt.Sprintf("/tmp/job%d", number), s.Name
	if os.Getenv(together) != "" {
		dir, name = fmt.Sprintf("%s-%d", dir, node), fmt.Sprintf("%s-%d", name, node)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if s.Loss != "" {
		if err := shell("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "loss", s.Loss); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, shell("tc", "qdisc", "del", "dev", "eth0", "root")) }()
	}
	socket := filepath.Join(dir, "s")
	s.control, s.log = filepath.Join(dir, "m"), filepath.Join(job.Host, job.Kept, name+"-sidecar.log")
	if err := s.start(node, socket); err != nil {
		return err
	}
	var said strings.Builder
	line := []string{"--socket", socket, "--ranks", s.Ranks[node]}
	if s.MPI != "" {
		line = append(line, "--mpi", s.MPI)
	}
	ranks := exec.Command("outrigger-launch", slices.Concat(line, []string{"--"}, s.Program)...)
	ranks.Env = append(os.Environ(), s.Env...)
	ranks.Stdout, ranks.Stderr = &said, &said
	if err := ranks.Start(); err != nil {
		return errors.Join(err, s.end())
	}
	over, done := context.WithCancel(context.Background())
	drilled := make(chan int)
	go func() {
		if s.Kill > 0 && node == 1 {
			drilled <- s.kill(over, ranks.Process.Pid)
		} else {
			drilled <- s.drill(over, node)
		}
	}()
	_ = ranks.Wait() // the status is looked at below
	done()
	drills := <-drilled
	status := ranks.ProcessState.ExitCode()
	fmt.Printf("%s\nranks ended with status %d; %d drills\n", said.String(), status, drills)
	s.report()
	err = s.end()
	if b, e := os.ReadFile(s.log); e == nil {
		fmt.Printf("-- sidecar's log:\n%s--\n", tail(string(b)))
	}
	switch {
	case s.Status >= 0 && status != s.Status || s.Status < 0 && status == 0:
		err = errors.Join(err, fmt.Errorf("ranks ended with status %d, want %d", status, s.Status))
	case s.Kill > 0 && node == 1 && drills == 0:
		err = errors.Join(err, errors.New("no rank was killed before the job was over"))
	case s.Breaks > 0 && node == 0 && drills < s.Breaks:
		err = errors.Join(err, fmt.Errorf("the job was over after %d of %d forced errors: make it longer", drills, s.Breaks))
	}
	return err
}

// report is a sidecar's report about its messages and buffers.
type report struct {
	Protocols []struct {
		Name     string
		Messages uint64
	} `json:"protocols"`
	Buffers []json.RawMessage `json:"buffers"`
}

func (s *step) asked() (said report, err error) {
	r, err := s.client().Get("http://sidecar/report")
	if err != nil {
		return said, err
	}
	defer r.Body.Close()
	return said, json.NewDecoder(r.Body).Decode(&said)
}

// report prints the sidecar's report, and its broken connections.
func (s *step) report() {
	said, err := s.asked()
	if err != nil {
		fmt.Println("no report:", err) // the sidecar may have ended; the result of the step has its exit status
		return
	}
	broken, again := s.mended(s.client())
	fmt.Printf("connections: %d broken, %d made again\n", broken, again)
	fmt.Print("moved:")
	for _, p := range said.Protocols {
		fmt.Printf(" %s %d,", p.Name, p.Messages)
	}
	fmt.Println()
	for _, b := range said.Buffers {
		fmt.Printf("buffers: %s\n", b)
	}
}

// mended returns the sidecar's counts of broken connections and of reconnections; 0 if the
// metrics cannot be read.
func (s *step) mended(client *http.Client) (broken, again int) {
	r, err := client.Get("http://sidecar/metrics")
	if err != nil {
		return 0, 0
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case name == "outrigger_connection_breaks_total":
			broken = int(n)
		case name == "outrigger_reconnects_total":
			again = int(n)
		}
	}
	return broken, again
}

// connected returns the number of connections that the new lines of the sidecar's log report.
// A request to the sidecar would cost the sidecar more, and is made only at the end.
func (s *step) connected(log io.Reader) (n int) {
	b, err := io.ReadAll(log)
	s.unread = append(s.unread, b...)
	last := bytes.LastIndexByte(s.unread, '\n') + 1
	n = bytes.Count(s.unread[:last], []byte("connected by RDMA"))
	s.unread = append(s.unread[:0], s.unread[last:]...)
	if err != nil {
		fmt.Println("sidecar's log:", err)
	}
	return n
}

// client returns an HTTP client whose connections go to the sidecar's socket.
func (s *step) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.control)
	}}, Timeout: patience}
}

// tail returns a long log without its middle part.
func tail(log string) string {
	const most = 6000
	if len(log) <= most {
		return log
	}
	return log[:most/2] + "\n...\n" + log[len(log)-most/2:]
}

func shell(line ...string) error {
	if said, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(line, " "), err, said)
	}
	return nil
}

func (s *step) start(node int, socket string) error {
	out, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer out.Close() // the sidecar has its own descriptor
	s.sidecar = exec.Command("outrigger-sidecar", "--bootstrap", filepath.Join(programs, s.Document), "--pod", strconv.Itoa(node),
		"--socket", socket, "--metrics", "unix:"+s.control)
	s.sidecar.Stdout, s.sidecar.Stderr = out, out
	if s.Devices != "" {
		s.sidecar.Env = append(os.Environ(), "OUTRIGGER_DEVICES_HCA="+s.Devices)
	}
	if s.Memlock != 0 {
		return s.startLimited()
	}
	return s.sidecar.Start()
}

// startLimited starts a sidecar that may lock at most s.Memlock bytes. The limit applies to a
// process of root only if CAP_IPC_LOCK is not in its bounding set. A process inherits that set
// from the thread that starts it, so the set is changed in a thread that ends afterwards.
func (s *step) startLimited() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread is never unlocked, so that it ends with the goroutine
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_IPC_LOCK, 0, 0, 0); err != nil {
			started <- fmt.Errorf("dropping CAP_IPC_LOCK: %w", err)
			return
		}
		var before unix.Rlimit
		limit := unix.Rlimit{Cur: s.Memlock, Max: s.Memlock}
		if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &limit, &before); err != nil {
			started <- fmt.Errorf("limiting locked memory: %w", err)
			return
		}
		err := s.sidecar.Start()
		started <- errors.Join(err, unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &before, nil))
	}()
	return <-started
}

func (s *step) end() error {
	_ = s.sidecar.Process.Signal(syscall.SIGTERM) // it may have ended
	timer := time.AfterFunc(patience, func() { _ = s.sidecar.Process.Kill() })
	defer timer.Stop()
	_ = s.sidecar.Wait() // the status is looked at below
	if got := s.sidecar.ProcessState.ExitCode(); got != s.Sidecar {
		return fmt.Errorf("the sidecar ended with status %d, want %d", got, s.Sidecar)
	}
	return nil
}

// kill kills the first rank of a launcher once the sidecar reports at least s.Kill messages. It
// returns the number of killed ranks, 0 or 1.
func (s *step) kill(over context.Context, launcher int) int {
	for over.Err() == nil {
		select {
		case <-over.Done():
			return 0
		case <-time.After(200 * time.Millisecond):
		}
		said, err := s.asked()
		var messages uint64
		for _, p := range said.Protocols {
			messages += p.Messages
		}
		if err != nil || messages < uint64(s.Kill) {
			continue // the sidecar has not started, or has not reported enough messages
		}
		rank, err := child(launcher)
		if err == nil {
			err = unix.Kill(rank, unix.SIGKILL)
		}
		if err != nil {
			fmt.Println("kill:", err)
			return 0
		}
		return 1
	}
	return 0
}

// child returns the id of the first child of a process.
func child(of int) (int, error) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", of)) // Glob fails only for an invalid pattern
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if list := strings.Fields(string(b)); err == nil && len(list) > 0 {
			return strconv.Atoi(list[0])
		}
	}
	return 0, fmt.Errorf("process %d has no child", of)
}

// drill forces the errors of the queue pair that the step asks for, until the job is over. It
// returns their number.
func (s *step) drill(over context.Context, node int) (n int) {
	_ = os.Remove(plan.Enough) // the file may be of an earlier step
	if node != 0 || s.Breaks == 0 {
		return 0
	}
	defer func() {
		if err := os.WriteFile(plan.Enough, nil, 0o644); err != nil {
			fmt.Println(err)
		}
	}()
	log, err := os.Open(s.log)
	if err != nil {
		fmt.Println(err)
		return 0
	}
	defer log.Close()
	client, up := s.client(), 0
	for over.Err() == nil && n < s.Breaks {
		select {
		case <-over.Done():
			return n
		case <-time.After(20 * time.Millisecond):
		}
		if up += s.connected(log); up <= n {
			continue // the connection that the last drill broke has not been made again yet
		}
		// The job makes progress between two drills.
		select {
		case <-over.Done():
			return n
		case <-time.After(time.Duration(n*37%300) * time.Millisecond):
		}
		r, err := client.Post("http://sidecar/debug/break/1", "", nil)
		if err != nil {
			fmt.Println("drill:", err)
			continue
		}
		_ = r.Body.Close()
		n++
	}
	return n
}
