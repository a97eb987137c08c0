package dsa

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// end stops the use of the device. What is in flight ends when the driver says that the device
// has nothing left.
func (c *Channel) end(cause error) {
	if c.cause != nil {
		return
	}
	c.cause = fmt.Errorf("dsa: %w", cause)
	c.unbuffer()
	for c.again != 0 {
		i := c.again.first()
		c.again.remove(i)
		c.toProcessor(i)
	}
	go func() {
		c.result = c.queue.Close()
		close(c.drained)
	}()
}

// leave leaves what is in flight to the processor. The queue is closed.
func (c *Channel) leave() {
	for c.flying != 0 {
		i := c.flying.first()
		c.flying.remove(i)
		c.toProcessor(i)
	}
}

// abandoned holds channels whose devices may still write memory.
var abandoned struct {
	sync.Mutex
	channels []*Channel
}

// Close implements copyeng.Channel. It closes the device file, and waits at most Config.Drain for
// the driver. With ErrDraining, the memory of pending copies must not be used again.
func (c *Channel) Close() error {
	if c.closed {
		return nil
	}
	c.end(errClosed)
	c.closed = true
	timer := time.NewTimer(c.drainMax)
	defer timer.Stop()
	select {
	case <-c.drained:
		c.flying = 0
		return errors.Join(c.result, c.records.unmap())
	case <-timer.C:
	}
	err := fmt.Errorf("dsa: the driver has not closed the queue after %v", c.drainMax)
	if c.reapFlying(); c.flying == 0 { // all is complete, and the device has nothing to write
		return err
	}
	abandoned.Lock()
	defer abandoned.Unlock()
	abandoned.channels = append(abandoned.channels, c)
	return fmt.Errorf("%w: %w", err, ErrDraining)
}
