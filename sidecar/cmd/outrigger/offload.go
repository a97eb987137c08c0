package main

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/dsa"
)

// offloadCommand returns the command that measures copy engines without a job.
func offloadCommand() *cobra.Command {
	var asJSON, quick bool
	var files []string
	cmd := &cobra.Command{
		Use:   "offload",
		Short: "measure the copy engines of this machine",
		Long: `offload measures a thread that copies, and each DSA queue of this container or of
--dsa, and compares them with copies of the calling thread: bytes a second, the time that
the engine's thread spends on submission and on polling, and the time until the last byte.
A sidecar uses an engine from the size on that the last line of the engine says.`,
		Example: `  outrigger bench offload
  outrigger bench offload --dsa /dev/dsa/wq0.0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				list, err := devices.FromEnv(os.Environ())
				if err != nil {
					return err
				}
				for _, x := range list {
					if x.Kind == "dsa" {
						files = append(files, x.Files...)
					}
				}
			}
			rounds := 101
			if quick {
				rounds = 5
			}
			var failed error
			for _, e := range offloadEngines(files) {
				r := bench.Offload(e, rounds)
				if asJSON {
					failed = errors.Join(failed, json.NewEncoder(cmd.OutOrStdout()).Encode(r))
				} else {
					failed = errors.Join(failed, bench.ShowOffload(cmd.OutOrStdout(), r))
				}
			}
			return failed
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object for each engine instead of tables")
	f.BoolVar(&quick, "quick", false, "few copies: a check that the engines work, not a measurement")
	f.StringSliceVar(&files, "dsa", nil, "device files of DSA queues (default: those of this container)")
	return cmd
}

// offloadEngines returns the engines to measure.
func offloadEngines(queues []string) []bench.OffloadEngine {
	list := []bench.OffloadEngine{{Name: "helper", Open: func() (copyeng.Channel, error) { return copyeng.NewHelper(-1), nil }}}
	for _, file := range queues {
		list = append(list, bench.OffloadEngine{Name: "dsa " + file, Open: func() (copyeng.Channel, error) {
			q, err := dsa.Open(dsa.Config{File: file})
			if err != nil {
				return nil, err // a nil *dsa.Channel would not be a nil Channel
			}
			return q, nil
		}})
	}
	return list
}
