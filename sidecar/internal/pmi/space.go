package pmi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// pairHead is the size of the header of each pair that is sent to other pods.
const pairHead = 6

// Bounds of the bytes that one rank may put between two barriers, and in all, as they are
// sent to other pods. Headers are included, because many small pairs would not fit into a
// round otherwise.
const (
	rankBytes = 64 << 10
	rankTotal = 1 << 20
)

// pairCost is the memory of a pair in addition to its bytes: an entry in a map, and two
// allocations.
const pairCost = 128

// space holds a job's keys and values: those put before the last barrier by all pods, and
// those put by this pod since then.
type space struct {
	all   map[string]string
	fresh map[string]string
	spent map[int]int // the bytes that each rank has put since the last barrier
	total map[int]int
	most  int64 // bytes that this pod's ranks may put for a program, pairCost included
	kept  int64 // bytes that this pod's ranks have put for the program, pairCost included
}

// spaceShare returns how many bytes the ranks of a pod may put for a program, as their
// share of what each sidecar keeps for the ranks of the job (memory.LaunchBytes).
func spaceShare(count, ranks int) int64 {
	return memory.LaunchBytes(ranks) * int64(count) / int64(max(ranks, 1))
}

func newSpace(mapping string, most int64) *space {
	s := &space{most: most, all: map[string]string{}, fresh: map[string]string{}, spent: map[int]int{}, total: map[int]int{}}
	if len(mapping) <= valueMax {
		s.all[mappingKey] = mapping
	}
	return s
}

// mappingKey is the key of the value that maps ranks to nodes.
const mappingKey = "PMI_process_mapping"

func (s *space) put(rank int, key, value string) error {
	if err := checkPair(key, value); err != nil {
		return err
	}
	if key == mappingKey {
		return errors.New("the process mapping is the launcher's")
	}
	n := pairHead + len(key) + len(value)
	if s.spent[rank]+n > rankBytes || s.total[rank]+n > rankTotal {
		return fmt.Errorf("more than %d bytes of a rank between two barriers, or %d in all", rankBytes, rankTotal)
	}
	cost := int64(len(key) + len(value) + pairCost)
	if s.kept+cost > s.most {
		return fmt.Errorf("%d bytes of the ranks of this pod are kept in each sidecar for this program, %d of them for each pair in addition to its key and value; at most %d may be kept", s.kept, pairCost, s.most)
	}
	s.kept += cost
	s.spent[rank] += n
	s.total[rank] += n
	s.fresh[key] = value
	return nil
}

func (s *space) get(key string) (string, bool) {
	if v, ok := s.fresh[key]; ok {
		return v, true
	}
	v, ok := s.all[key]
	return v, ok
}

// export returns what this pod has put since the last barrier: for each pair the lengths,
// u16 and u32, and the bytes.
func (s *space) export() []byte {
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(s.fresh)) {
		value := s.fresh[key]
		b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
		b = append(append(b, key...), value...)
	}
	return b
}

var errPairs = errors.New("malformed pairs")

// admit adds what a pod has exported.
func (s *space) admit(b []byte) error {
	for len(b) > 0 {
		if len(b) < pairHead {
			return errPairs
		}
		k, v := int(binary.LittleEndian.Uint16(b)), uint64(binary.LittleEndian.Uint32(b[2:]))
		b = b[pairHead:]
		if uint64(len(b)) < uint64(k)+v {
			return errPairs
		}
		key, value := string(b[:k]), string(b[k:k+int(v)])
		b = b[k+int(v):]
		if err := checkPair(key, value); err != nil {
			return fmt.Errorf("%w: %w", errPairs, err)
		}
		if key != mappingKey {
			s.all[key] = value
		}
	}
	return nil
}

// renew removes what a program has put, for the next program.
func (s *space) renew() {
	mapping, ok := s.all[mappingKey]
	clear(s.all)
	clear(s.total)
	s.kept = 0
	s.passed()
	if ok {
		s.all[mappingKey] = mapping
	}
}

// passed notes that a barrier has ended.
func (s *space) passed() {
	clear(s.fresh)
	clear(s.spent)
}

// mapping returns which rank is on which node, in the notation of PMI-1: blocks of (first
// node, nodes, ranks on each).
func mapping(ranks []int) string {
	text := "(vector"
	for i := 0; i < len(ranks); {
		n := 1
		for i+n < len(ranks) && ranks[i+n] == ranks[i] {
			n++
		}
		text += fmt.Sprintf(",(%d,%d,%d)", i, n, ranks[i])
		i += n
	}
	return text + ")"
}
