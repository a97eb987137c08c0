package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/outrigger-hpc/outrigger/e2e/harness/keeper"
)

// Probe is the name of hack/cluster/probe's image, which also holds each pod's
// namespaces.
const Probe = "probe"

// Image returns an image of hack/image as the cluster's nodes have it.
func (c *Cluster) Image(name string) string { return reference(name, c.layout.Version) }

func reference(name, version string) string { return "outrigger.dev/" + name + ":" + version }

// useImages imports all archives of a folder of hack/image into every node.
func useImages(layout *keeper.Layout, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	version, err := os.ReadFile(filepath.Join(dir, "version"))
	if err != nil {
		return fmt.Errorf("images: %w; `make cluster-images` writes them", err)
	}
	if layout.Images, err = filepath.Glob(filepath.Join(dir, "*.tar")); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if !slices.Contains(layout.Images, filepath.Join(dir, Probe+".tar")) {
		return errors.New("images: there is no " + Probe + ".tar in " + dir + "; `make cluster-images` writes it")
	}
	layout.Version = strings.TrimSpace(string(version))
	layout.Sandbox = reference(Probe, layout.Version)
	return nil
}

// Load imports archives of images into every node.
func (c *Cluster) Load(archives ...string) error {
	var all errgroup.Group
	for _, n := range c.Nodes() {
		all.Go(func() error { return n.Load(archives...) })
	}
	return all.Wait()
}
