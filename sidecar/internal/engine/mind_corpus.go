//go:build corpus

package engine

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/corpus"
)

type mind = corpus.Recorder

// newMind makes a core that records its inputs in the directory OUTRIGGER_CORPUS.
func newMind(cfg core.Config, ports core.Ports) (*mind, error) {
	name := filepath.Join(os.Getenv("OUTRIGGER_CORPUS"), fmt.Sprintf("pod-%d-%d", cfg.Self, os.Getpid()))
	inputs, err := os.Create(name + ".raw") // both files are closed when the process ends
	if err != nil {
		return nil, fmt.Errorf("record for the corpus: %w", err)
	}
	steps, err := os.Create(name + ".said")
	if err != nil {
		return nil, fmt.Errorf("record for the corpus: %w", err)
	}
	return corpus.Record(cfg, ports, inputs, steps)
}
