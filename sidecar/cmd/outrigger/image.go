package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/image"
)

func imageCommand() *cobra.Command {
	var tag, output string
	cmd := &cobra.Command{
		Use:   "image PROGRAM [flags]",
		Short: "wrap a static program into a container image",
		Long: `image writes an archive with an image that holds only PROGRAM, its entry point, at
/usr/local/bin/PROGRAM: no shell, no library, user 65532. It needs no container engine
and no base image. The same program gives the same bytes.

Build a Go program for it with CGO_ENABLED=0. The archive is imported as one of
docker save:

  ctr -n k8s.io images import solver.tar        a node's containerd
  docker load -i solver.tar
  skopeo copy oci-archive:solver.tar docker://REGISTRY/solver:v1`,
		Example: `  outrigger image solver                                      # solver:dev in solver.tar
  outrigger image -t registry.example.com/team/solver:v1 solver`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%d arguments: want one program, as in `outrigger image PROGRAM`", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if tag == "" {
				tag = filepath.Base(args[0])
			}
			if output == "" {
				output = filepath.Base(args[0]) + ".tar"
			}
			i, err := imageOf(args[0], tag)
			if err != nil && !cmd.Flags().Changed("tag") && errors.Is(err, image.ErrReference) {
				return fmt.Errorf("%w; name it with -t", err)
			}
			if err != nil {
				return err
			}
			digest, err := i.Save(output)
			if err != nil {
				return err
			}
			info, err := os.Stat(output)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: image %s for %s, %s, %s\n", output, i.Reference, i.Arch, memory.Text(uint64(info.Size())), digest)
			return err
		},
	}
	cmd.Flags().StringVarP(&tag, "tag", "t", "", "name of the image, such as solver:v1 (default: the program's, :dev)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write (default: the program's name with .tar)")
	return cmd
}

// programMax bounds the size of a program, 2 GiB: the whole file is read into memory.
const programMax = 2 << 30

func imageOf(program, tag string) (*image.Image, error) {
	reference, err := image.Reference(tag)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(program)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > programMax) {
		err = fmt.Errorf("%s: want a program, a regular file of at most %s", program, memory.Text(programMax))
	}
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	arch, err := image.Static(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return &image.Image{Reference: reference, Name: filepath.Base(program), Program: content, Arch: arch}, nil
}
