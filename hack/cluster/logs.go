package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

func logsCommand() *cobra.Command {
	var lines int
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "print the end of every log: the control plane's and the nodes'",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := harness.Open(cmd.Context())
			if err != nil {
				return err
			}
			folders := []string{c.Logs()}
			for _, n := range c.Nodes() {
				folders = append(folders, n.Path("log"))
			}
			for _, folder := range folders {
				if err := printEnds(folder, lines); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&lines, "lines", 20, "how many lines of each")
	return cmd
}

func printEnds(folder string, lines int) error {
	names, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		fmt.Printf("==> %s\n%s", name, lastLines(text, lines))
	}
	return nil
}

// lastLines returns the last lines of a text.
func lastLines(text []byte, lines int) []byte {
	all := bytes.SplitAfter(text, []byte("\n"))
	return bytes.Join(all[max(0, len(all)-1-lines):], nil)
}
