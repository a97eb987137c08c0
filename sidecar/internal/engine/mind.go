//go:build !corpus

package engine

import "github.com/outrigger-hpc/outrigger/sidecar/internal/core"

// mind is the core. In a build with the tag corpus it is one whose inputs are recorded.
type mind = core.Core

func newMind(cfg core.Config, ports core.Ports) (*mind, error) { return core.New(cfg, ports) }
