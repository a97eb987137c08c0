package dsa

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Config says which queue a channel uses, and its bounds.
type Config struct {
	// File is the device file, such as /dev/dsa/wq0.1 (devices.Device.Files).
	File string
	// Root has the directory sys. Empty: /.
	Root string
	// Pending is the most copies of which the end is not reported. 0: 64.
	Pending int
	// Late is the time without a completion after which the device counts as dead. 0: 1 s,
	// far more than a full queue of the largest pieces takes.
	Late time.Duration
	// Drain is the longest time for which Close waits. 0: 5 s.
	Drain time.Duration
	// Open opens the queue, for tests with a model. nil: the device file.
	Open func(file string) (Queue, error)

	// records allocates completion records. nil: they are mapped. The race detector does not see
	// atomic accesses to mapped memory, so tests use the heap.
	records func(n int) ([]byte, error)
	// suspect is the time without a completion after which an error that the device reports ends
	// the channel. 0: suspectAfter.
	suspect time.Duration
}

// Bounds.
const (
	pendingDefault = 64
	pendingMax     = 4096
	slotsMax       = 64 // descriptors in flight: the bits of a set
	lateDefault    = time.Second
	drainDefault   = 5 * time.Second
)

// withDefaults replaces zeros.
func (cfg Config) withDefaults() Config {
	if cfg.Root == "" {
		cfg.Root = "/"
	}
	if cfg.Pending == 0 {
		cfg.Pending = pendingDefault
	}
	if cfg.Late == 0 {
		cfg.Late = lateDefault
	}
	if cfg.Drain == 0 {
		cfg.Drain = drainDefault
	}
	if cfg.suspect == 0 {
		cfg.suspect = suspectAfter
	}
	if cfg.Open == nil {
		cfg.Open = openFile
	}
	return cfg
}

// Open opens a work queue of type user.
func Open(cfg Config) (*Channel, error) {
	cfg = cfg.withDefaults()
	if cfg.Pending < 0 || cfg.Pending > pendingMax {
		return nil, fmt.Errorf("dsa: %d pending copies: want 1 to %d", cfg.Pending, pendingMax)
	}
	a, err := readAttributes(cfg.Root, filepath.Base(cfg.File))
	if err != nil {
		return nil, fmt.Errorf("dsa: %w", err)
	}
	q, err := cfg.Open(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("dsa: open %s: %w%s", cfg.File, err, remedy(err))
	}
	slots := min(a.size, slotsMax)
	r := records{mapped: cfg.records == nil}
	if r.mapped {
		cfg.records = mapRecords
	}
	if r.mem, err = cfg.records(slots); err != nil {
		return nil, errors.Join(fmt.Errorf("dsa: %w", err), q.Close())
	}
	return &Channel{
		queue: q, late: cfg.Late, suspect: cfg.suspect, drainMax: cfg.Drain,
		copies: make([]transfer, cfg.Pending), records: r, free: fullSet(slots),
		piece: min(a.transfer, pieceMax) &^ (lineBytes - 1), batch: min(a.batch, batchMax),
		writable: resident{write: true}, unreliable: q.Failed(), drained: make(chan struct{}),
	}, nil
}

// remedy returns what to do about an error of open.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EBUSY):
		return "; another process has the dedicated queue: use a shared one, or one for each sidecar"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "; the pod has not been given the queue: request a resource of kind dsa"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return "; the device cannot use a process's addresses: boot with intel_iommu=on,sm_on"
	}
	return ""
}
