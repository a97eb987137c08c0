// Command outrigger-ssh is what an mpirun starts instead of ssh: it runs a command in
// another pod of the job.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/remote"
)

// exitFailed is ssh's exit code for a failure of its own.
const exitFailed = 255

const usage = `outrigger-ssh runs a command in another pod of an Outrigger job, for an mpirun that
would start its daemons by ssh. Programs that outrigger-launch starts find it by
themselves; docs/mpi.md says for which MPIs.

  outrigger-ssh [OPTIONS OF SSH] pod-N COMMAND

The options have no meaning here. The command is run by /bin/sh in the application's
container of pod N, as its user, with the environment of the ranks there.
`

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
		fmt.Fprint(os.Stderr, usage)
		return exitFailed
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer stop()
	code, err := start(ctx, args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "outrigger-ssh:", err)
		return exitFailed
	}
	return code
}

func start(ctx context.Context, args []string) (int, error) {
	socket := os.Getenv(names.EnvAgent)
	if socket == "" {
		return 0, fmt.Errorf("%s is not set: it is for programs that outrigger-launch starts", names.EnvAgent)
	}
	line, err := remote.Parse(args)
	if err != nil {
		return 0, err
	}
	a := remote.Agent{Socket: socket, In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	return a.Run(ctx, line)
}
