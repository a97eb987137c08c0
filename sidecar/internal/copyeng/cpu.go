package copyeng

// CPU is the channel that copies in Submit, by the processor of the caller. The other
// channels are measured against it.
type CPU struct {
	ended [cpuMax]uint64 // tokens of copies whose end is not reported, oldest first
	n     int
}

// cpuMax bounds the copies whose end is not reported.
const cpuMax = 64

// cachePiece is the largest part that is copied at once: Go's copy of more stores around
// the cache (about 1 MiB on amd64), and the reader of dst would find no byte of it there.
const cachePiece = 256 << 10

// Name returns "cpu".
func (c *CPU) Name() string { return "cpu" }

// Submit copies src to dst before it returns.
func (c *CPU) Submit(dst, src []byte, token uint64) bool {
	if c.n == len(c.ended) {
		return false
	}
	for len(src) > 0 {
		n := copy(dst, src[:min(len(src), cachePiece)])
		dst, src = dst[n:], src[n:]
	}
	c.ended[c.n] = token
	c.n++
	return true
}

// Poll reports the copies that were submitted.
func (c *CPU) Poll(done func(token uint64, err error)) int {
	list, n := c.ended, c.n // done may submit more
	c.n = 0
	for _, token := range list[:n] {
		done(token, nil)
	}
	return n
}

// Pending returns the number of copies whose end is not reported.
func (c *CPU) Pending() int { return c.n }

// Close does nothing: no copy outlives Submit.
func (c *CPU) Close() error { return nil }
