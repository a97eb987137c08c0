// Command probe is the program in the test cluster's pods: it holds a pod's
// namespaces (pause), and does one small thing at a time that a test looks at.
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

// patience is how long a probe tries what may not be there yet.
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

// pause waits to be ended. As the first process of a shared process namespace
// it also collects what the containers leave.
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

// serve answers every connection to an address with a line: who it is.
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
	name, _ := os.Hostname() // empty: the test sees it
	if node := os.Getenv("NODE"); node != "" {
		name += " on " + node
	}
	return name
}

// dial prints what serve says at an address, once it does.
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

// lookup prints the addresses of a name, once it has any.
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

// write puts a line into a file and stays, as a sidecar does.
func write(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("write FILE LINE")
	}
	if err := os.WriteFile(args[0], []byte(args[1]+"\n"), 0o644); err != nil {
		return err
	}
	return pause(ctx, nil)
}

// read prints a file, once it is there.
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

// report prints who runs here and what it sees of the files that it is asked
// for, as a test of devices and of security settings wants it.
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

// persist tries until there is no error; then it has done its one thing.
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
