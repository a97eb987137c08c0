package harness

import "golang.org/x/sync/errgroup"

// Load imports archives of images into every node.
func (c *Cluster) Load(archives ...string) error {
	var all errgroup.Group
	for _, n := range c.Nodes() {
		all.Go(func() error { return n.Load(archives...) })
	}
	return all.Wait()
}
