//go:build !corpus

package engine

import "github.com/outrigger-hpc/outrigger/sidecar/internal/core"

// mind is the core. A build with the tag corpus records the inputs of the core.
type mind = core.Core

func newMind(cfg core.Config, ports core.Ports) (*mind, error) { return core.New(cfg, ports) }
