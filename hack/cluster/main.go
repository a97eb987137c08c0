// Command cluster brings a real Kubernetes cluster up on this machine and takes
// it down: a control plane and two nodes in namespaces of their own. See
// docs/cluster.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

func main() {
	mine, code, err := harness.Self(os.Args[1:])
	if !mine {
		code, err = execute()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
	}
	os.Exit(code)
}

func execute() (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "a Kubernetes cluster on this machine, for tests",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), downCommand(), statusCommand(), logsCommand(), loadCommand(), kubectlCommand(), execCommand(), programsCommand())
	root.AddCommand(nodeCommands()...)
	err := root.ExecuteContext(ctx)
	var program *exec.ExitError
	switch {
	case errors.As(err, &program):
		return program.ExitCode(), nil // the program has printed the reason
	case err != nil:
		return 1, err
	}
	return 0, nil
}

func upCommand() *cobra.Command {
	var options harness.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "bring the cluster up; it stays until `cluster down`",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := harness.Up(cmd.Context(), options, os.Stdout)
			if err != nil {
				return err
			}
			fmt.Printf("export KUBECONFIG=%s\n", c.Kubeconfig)
			return nil
		},
	}
	cmd.Flags().IntVar(&options.Nodes, "nodes", 2, "how many nodes")
	cmd.Flags().StringVar(&options.Images, "images", "bin/images", "import every archive of this `folder`, which hack/image wrote")
	return cmd
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "end the cluster and remove what it made",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return harness.Down() },
	}
}

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "say what runs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := harness.Open(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Printf("export KUBECONFIG=%s\nlogs: %s\n", c.Kubeconfig, c.Logs())
			for _, n := range c.Nodes() {
				running, err := n.Running()
				if err != nil {
					fmt.Printf("%s: does not run\n", n.Name)
					continue
				}
				fmt.Printf("%s: %v, logs in %s\n", n.Name, running, n.Path("log"))
			}
			return nil
		},
	}
}

func loadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load IMAGE-ARCHIVE...",
		Short: "import images into every node",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, archives []string) error {
			c, err := harness.Open(cmd.Context())
			if err != nil {
				return err
			}
			return c.Load(archives...)
		},
	}
}

func programsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "programs",
		Short: "build Kubernetes' programs if need be and print their folder",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := harness.Programs(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Println(dir)
			return nil
		},
	}
}
