// Command probe is the program in the test cluster's pods: it holds a pod's
// namespaces (pause), and carries out one small command at a time whose output a test checks.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// patience is the time for which a probe repeats a command whose target may not exist yet.
const patience = 2 * time.Minute

// probes take their arguments and, when ctx ends, return.
var probes = map[string]func(ctx context.Context, args []string) error{
	"pause":   pause,
	"serve":   serve,
	"dial":    dial,
	"lookup":  lookup,
	"write":   write,
	"read":    read,
	"report":  report,
	"inside":  inside,
	"intrude": intrude,
	"certify": certify,
	"fetch":   fetch,
	"refuse":  refuse,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"pause"}
	}
	probe := probes[args[0]]
	if probe == nil {
		return fmt.Errorf("%q is no probe", args[0])
	}
	return probe(ctx, args[1:])
}

// pause waits for the end of ctx. As the first process of a shared process namespace
// it also reaps processes that the containers leave.
func pause(ctx context.Context, _ []string) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-children:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}

// serve answers every connection to an address with a line that names this pod.
func serve(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("serve ADDRESS")
	}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(conn, "%s to %s\n", whoami(), conn.RemoteAddr()) // a client that left does not matter
		_ = conn.Close()
	}
}

func whoami() string {
	name, _ := os.Hostname() // if it is empty, the test fails
	if node := os.Getenv("NODE"); node != "" {
		name += " on " + node
	}
	return name
}

// dial prints the line of serve at an address, when serve answers.
func dial(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("dial ADDRESS")
	}
	return persist(ctx, func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", args[0])
		if err != nil {
			return err
		}
		defer conn.Close()
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			return err
		}
		_, err = os.Stdout.WriteString(line)
		return err
	})
}

// lookup prints the addresses of a name, when it has some.
func lookup(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("lookup NAME")
	}
	return persist(ctx, func(ctx context.Context) error {
		found, err := net.DefaultResolver.LookupHost(ctx, args[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(os.Stdout, strings.Join(found, " "))
		return err
	})
}

// write writes a line into a file and keeps running, as a sidecar does.
func write(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("write FILE LINE")
	}
	if err := os.WriteFile(args[0], []byte(args[1]+"\n"), 0o644); err != nil {
		return err
	}
	return pause(ctx, nil)
}

// read prints a file, when it exists.
func read(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("read FILE")
	}
	return persist(ctx, func(context.Context) error {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(text)
		return err
	})
}

// report prints the user of this process and the state of the files that its arguments name, for
// tests of devices and of security settings.
func report(_ context.Context, args []string) error {
	fmt.Printf("uid=%d gid=%d\n", os.Getuid(), os.Getgid())
	for _, v := range os.Environ() {
		fmt.Printf("env %s\n", v)
	}
	for _, name := range args {
		if info, err := os.Stat(name); err != nil {
			fmt.Printf("file %s: %v\n", name, err)
		} else {
			fmt.Printf("file %s: %v\n", name, info.Mode())
		}
	}
	return nil
}

// persist repeats a command until it returns no error.
func persist(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
