package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/manifest"
)

func convertCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "convert {-f FILE | FILE}",
		Short: "turn an MPIJob of Kubeflow's mpi-operator, or a TrainJob for MPI, into one of ours",
		Long: `outrigger convert reads an MPIJob of Kubeflow's mpi-operator (kubeflow.org/v1 or
v2beta1), or a TrainJob (trainer.kubeflow.org/v1alpha1) with its TrainingRuntime or
ClusterTrainingRuntime in the same file, and prints it as an MPIJob of Outrigger. On
stderr it lists the fields that it drops or moves, and those that a person has to check.
An unknown field or option of mpirun is an error.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && file == "":
				file = args[0]
			case len(args) == 1:
				return fmt.Errorf("two files, %s and %s: name one", file, args[0])
			case file == "":
				return errors.New("no manifest: name its file, or - for standard input")
			}
			text, err := readInput(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			converted, notes, err := manifest.Convert(text)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			for _, n := range notes {
				cmd.PrintErrln("outrigger:", n)
			}
			_, err = cmd.OutOrStdout().Write(converted)
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the manifest; -: standard input")
	return cmd
}

// readInput reads a file, or standard input as "-", up to a manifest's size.
func readInput(file string, in io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(in, manifest.SizeMax+1))
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return io.ReadAll(io.LimitReader(f, manifest.SizeMax+1))
}
