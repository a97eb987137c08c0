package copyeng

import "errors"

// Mapper is a Channel that copies only memory that is mapped for it, which pins the memory.
// The processor makes its other copies.
type Mapper interface {
	Channel
	// Map makes memory accessible until Unmap of the same memory, or Close.
	Map(mem []byte) error
	// Unmap ends the access. Preconditions: no copy of the memory is pending.
	Unmap(mem []byte) error
}

// blockBytes is how much memory is mapped at once: pinning 4 MiB takes about a millisecond, for
// which other sessions wait.
const blockBytes = 4 << 20

// mapped is memory of a session, of which blocks are mapped for Mappers at their first copy.
type mapped struct {
	mem    []byte
	around func(off uint64) (from, to uint64) // the allocated piece that contains a byte; nil: all is allocated
	blocks []blockState
}

// allocated reports whether all of a block is: mapping allocates what is not.
func (m *mapped) allocated(i int) bool {
	if m.around == nil {
		return true
	}
	from, to := m.around(uint64(i * blockBytes))
	return from <= uint64(i*blockBytes) && to >= uint64(i*blockBytes+len(m.block(i)))
}

type blockState uint8

const (
	blockNew blockState = iota
	blockMapped
	blockRefused
)

// block returns the memory of a block.
func (m *mapped) block(i int) []byte {
	return m.mem[i*blockBytes : min((i+1)*blockBytes, len(m.mem))]
}

// AddMemory tells of memory from and to which transfers will be made. If only pieces of it are
// allocated, around returns the one that contains a byte, or two zeros.
func (c *Copies) AddMemory(mem []byte, around func(off uint64) (from, to uint64)) {
	if c != nil && c.cfg.Open != nil && len(mem) > 0 {
		c.memory = append(c.memory, &mapped{mem: mem, around: around, blocks: make([]blockState, (len(mem)+blockBytes-1)/blockBytes)})
	}
}

// DropMemory ends what AddMemory began, before the memory is unmapped from this process.
// Preconditions: no copy of the memory is pending.
func (c *Copies) DropMemory(mem []byte) (err error) {
	if c == nil || len(mem) == 0 {
		return nil
	}
	for i, m := range c.memory {
		if &m.mem[0] != &mem[0] {
			continue
		}
		c.memory = append(c.memory[:i], c.memory[i+1:]...)
		for k, state := range m.blocks {
			switch state {
			case blockMapped:
				err = errors.Join(err, c.unmapBlock(m.block(k)))
			case blockRefused:
				c.stats.Unmapped -= uint64(len(m.block(k)))
			}
		}
		return err
	}
	return nil
}

// mapFor maps the blocks that a piece needs, unless they are. Memory that cannot be mapped, for
// example because of the limit of locked memory, is tried once: the processor copies it.
func (c *Copies) mapFor(piece []byte) {
	for _, m := range c.memory {
		off, in := offset(m.mem, piece)
		if !in {
			continue
		}
		for i := off / blockBytes; i <= (off+len(piece)-1)/blockBytes; i++ {
			if m.blocks[i] == blockNew && m.allocated(i) {
				m.blocks[i] = c.mapBlock(m.block(i))
			}
		}
		return
	}
}

// mapBlock maps a block for all channels, or for none.
func (c *Copies) mapBlock(block []byte) blockState {
	for i, l := range c.lanes {
		err := l.Channel.(Mapper).Map(block)
		if err == nil {
			continue
		}
		for _, other := range c.lanes[:i] {
			err = errors.Join(err, other.Channel.(Mapper).Unmap(block))
		}
		if c.stats.MapCause == "" {
			c.stats.MapCause = err.Error()
		}
		c.stats.Unmapped += uint64(len(block))
		return blockRefused
	}
	c.stats.Mapped += uint64(len(block))
	return blockMapped
}

// unmapBlock ends what mapBlock began.
func (c *Copies) unmapBlock(block []byte) (err error) {
	for _, l := range c.lanes {
		err = errors.Join(err, l.Channel.(Mapper).Unmap(block))
	}
	c.stats.Mapped -= uint64(len(block))
	return err
}
