// Command holder is the program in the pods of e2e/devices: it prints one line of JSON with the
// devices that it finds and the answers of the node's agent.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/api/grant"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/e2e/devices/sight"
)

// patience is how long the other pod of a job may take to start.
const patience = 2 * time.Minute

type options struct {
	socket    string
	ask       uint64
	lower     uint64
	pod, peer int
	stay      bool
}

func main() {
	var o options
	flag.StringVar(&o.socket, "socket", os.Getenv(names.EnvGrantSocket), "the node agent's socket")
	flag.Uint64Var(&o.ask, "ask", 0, "ask for so many bytes of locked memory")
	flag.Uint64Var(&o.lower, "lower", 0, "before that, lower the soft limit to so many bytes")
	flag.IntVar(&o.pod, "pod", -1, "join the job as this pod")
	flag.IntVar(&o.peer, "peer", -1, "and connect to this one; without it, wait for a connection")
	flag.BoolVar(&o.stay, "stay", false, "stay until SIGTERM, as a sidecar does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := json.NewEncoder(os.Stdout).Encode(look(ctx, &o)); err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
	if o.stay {
		<-ctx.Done()
	}
}

func look(ctx context.Context, o *options) *sight.Sight {
	s := &sight.Sight{UID: os.Getuid(), Files: map[string]string{}}
	var err error
	if s.Devices, err = devices.FromEnv(os.Environ()); err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	if err := filepath.WalkDir("/dev", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeCharDevice != 0 {
			s.Files[name] = describe(name)
		}
		return nil // a device that cannot be read is not listed
	}); err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	s.Socket = o.socket
	if o.socket != "" {
		if err := talk(ctx, o, s); err != nil {
			s.Refusal = err.Error()
		}
	}
	return s
}

// describe returns a device's number, and whether it can be opened.
func describe(name string) string {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return err.Error()
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return number + " closed: " + err.Error()
	}
	_ = f.Close() // it was opened only to check that it can be
	return number
}

// talk makes the requests to the agent that the options name, in their order.
func talk(ctx context.Context, o *options, s *sight.Sight) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := grant.Dial(ctx, o.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if o.ask > 0 {
		if err := limit(o.lower); err != nil {
			return err
		}
		if _, err := c.Memlock(ctx, o.ask); err != nil {
			return err
		}
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &now); err != nil {
		return err
	}
	s.Memlock = now.Cur
	if o.pod >= 0 {
		s.Heard, err = meet(ctx, c, o)
	}
	return err
}

func limit(soft uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &now); err != nil || soft == 0 {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: soft, Max: now.Max})
}

// meet connects to the peer or waits for it, and returns the text that the peer has sent.
func meet(ctx context.Context, c *grant.Client, o *options) (string, error) {
	if err := c.Join(ctx, o.pod); err != nil {
		return "", err
	}
	conn, err := connection(ctx, c, o.peer)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "pod %d", o.pod); err != nil {
		return "", err
	}
	text := make([]byte, 64)
	n, err := conn.Read(text)
	return string(text[:n]), err
}

func connection(ctx context.Context, c *grant.Client, peer int) (*os.File, error) {
	if peer < 0 {
		p, err := c.Accept(ctx)
		return p.Conn, err
	}
	for {
		f, err := c.Connect(ctx, peer)
		var refused *grant.Refused
		if err == nil || !errors.As(err, &refused) || !strings.Contains(refused.Cause, "has not joined") || ctx.Err() != nil {
			return f, err
		}
		time.Sleep(100 * time.Millisecond) // until the other pod has started
	}
}
