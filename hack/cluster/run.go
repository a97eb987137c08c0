package main

import (
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ARGUMENT...",
		Short:              "run the cluster's kubectl",
		DisableFlagParsing: true, // all flags are kubectl's
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := harness.Open(cmd.Context())
			if err != nil {
				return err
			}
			return attached(c.Kubectl(cmd.Context(), args...))
		},
	}
}

func execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec NODE PROGRAM [ARGUMENT...]",
		Short: "run a program in a node: its processes, mounts, devices and network",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := find(cmd, args[0])
			if err != nil {
				return err
			}
			program, err := n.Command(cmd.Context(), args[1:]...)
			if err != nil {
				return err
			}
			return attached(program)
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after NODE are the program's
	return cmd
}

// attached runs a program with this terminal.
func attached(program *exec.Cmd) error {
	program.Stdin, program.Stdout, program.Stderr = os.Stdin, os.Stdout, os.Stderr
	return program.Run()
}

// nodeCommands returns the commands that act on a node.
func nodeCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, c := range []struct {
		use, short string
		do         func(*harness.Node) error
	}{
		{"stop-node", "end a node and everything on it at once, as a power failure does", (*harness.Node).Stop},
		{"start-node", "start a node that was stopped, on the disk that it had", (*harness.Node).Start},
		{"stop-kubelet", "end a node's kubelet; pods go on", (*harness.Node).StopKubelet},
		{"start-kubelet", "start a node's kubelet again", (*harness.Node).StartKubelet},
		{"restart-containerd", "end a node's containerd and start it; containers go on", (*harness.Node).RestartContainerd},
	} {
		commands = append(commands, &cobra.Command{
			Use: c.use + " NODE", Short: c.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				n, err := find(cmd, args[0])
				if err != nil {
					return err
				}
				return c.do(n)
			},
		})
	}
	return commands
}

func find(cmd *cobra.Command, name string) (*harness.Node, error) {
	c, err := harness.Open(cmd.Context())
	if err != nil {
		return nil, err
	}
	return c.Node(name)
}
