package ranks

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// NotHere is what is wrong with a frame for a rank that this sidecar does not host.
func NotHere(h *wire.Header) error {
	return fmt.Errorf("%w: message for rank %d, which is not here", link.ErrProtocol, h.Dst)
}

// NotThere is what is wrong with a frame in the name of a rank that its peer does not host.
func NotThere(h *wire.Header) error {
	return fmt.Errorf("%w: message in the name of rank %d, which is not there", link.ErrProtocol, h.Src)
}

// NoSuchRank is what is wrong with a descriptor that names a rank beyond the job's.
func NoSuchRank(rank uint32, podOf []int32) error {
	return fmt.Errorf("rank %d of a job of %d", rank, len(podOf))
}
