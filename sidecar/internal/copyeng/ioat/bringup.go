package ioat

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// ErrUnusable is wrapped by errors for devices that this package cannot drive.
var ErrUnusable = errors.New("ioat: the device cannot be used")

// Bounds of what a device may take to obey. The waiting is on the engine's goroutine, but
// happens only when a channel begins, ends or fails.
const (
	obeyTimeout  = 20 * time.Millisecond
	firstTimeout = 100 * time.Millisecond
)

// identify reads what the device is, and lets it access memory only after it has been reset.
func (c *Channel) identify() error {
	id, err := c.dev.ReadConfig(cfgVendorID, 4)
	if err != nil {
		return err
	}
	class, err := c.dev.ReadConfig(cfgClass, 2)
	if err != nil {
		return err
	}
	if id&0xffff != intel || class != classPeripheral {
		return fmt.Errorf("%w: PCI id %#08x and class %#04x are not those of an I/OAT engine", ErrUnusable, id, class)
	}
	if err := c.command(pciMemory, pciMaster); err != nil {
		return err
	}
	count := int(c.dev.Read8(regChannels) & countMask)
	limit := c.dev.Read8(regXferCap) & countMask
	c.version = c.dev.Read8(regVersion)
	switch {
	case c.version < versionMin:
		return fmt.Errorf("%w: it has version %#x, and %#x is the oldest that is supported", ErrUnusable, c.version, versionMin)
	case c.version == 0xff:
		return fmt.Errorf("%w: its registers cannot be read", ErrUnusable)
	case c.opt.Channel < 0 || c.opt.Channel >= count:
		return fmt.Errorf("%w: it has %d channels, and channel %d is wanted", ErrUnusable, count, c.opt.Channel)
	case limit != 0 && limit < xferCapMin:
		return fmt.Errorf("%w: its longest copy is 2^%d bytes (XFERCAP)", ErrUnusable, limit)
	}
	if limit == 0 || limit > xferCapUsed { // 0 means 4 GiB
		limit = xferCapUsed
	}
	c.longest = 1 << limit
	if id>>16 == skylake {
		c.version = skylakeVersion
	}
	return nil
}

// command sets and clears bits of the command register.
func (c *Channel) command(set, clear uint32) error {
	v, err := c.dev.ReadConfig(cfgCommand, 2)
	if err != nil {
		return err
	}
	if err := c.dev.WriteConfig(cfgCommand, 2, v&^clear|set); err != nil {
		return err
	}
	// Reading orders what follows behind the write.
	_, err = c.dev.ReadConfig(cfgCommand, 2)
	return err
}

// bringUp resets the channel, starts it and lets it execute a descriptor without a copy.
func (c *Channel) bringUp() error {
	if err := c.strictOrder(); err != nil {
		return err
	}
	if c.express && c.version < versionNoMask {
		if err := c.dev.WriteConfig(cfgErrorMaskInt, 4, errorMaskInt); err != nil {
			return err
		}
	}
	if err := c.reset(); err != nil {
		return err
	}
	if err := c.command(pciMaster, 0); err != nil {
		return err
	}
	c.start()
	c.ring.put(0, 8, ctlNull|ctlCompletion, 0, 0)
	c.posted = 1
	c.doorbell()
	var status uint64
	ok := c.await(firstTimeout, func() bool {
		status = c.ring.word.Load()
		n, ok := c.ring.ended(status, 0, c.posted)
		return ok && n == 1 || status&statusMask == statusHalted
	})
	if !ok || status&statusMask != statusIdle {
		return fmt.Errorf("%w: its first descriptor did not end: completion word %#x, status %#x, errors %#x",
			ErrUnusable, status, c.dev.Read64(c.base+regStatus), c.dev.Read32(c.base+regError))
	}
	c.done, c.seen = 1, status
	return nil
}

// strictOrder clears relaxed ordering. With it, the completion word could become visible before
// the data. A device without the PCI Express capability has no relaxed ordering.
func (c *Channel) strictOrder() error {
	status, err := c.dev.ReadConfig(cfgStatus, 2)
	if err != nil || status&pciHasList == 0 {
		return err
	}
	at, err := c.dev.ReadConfig(cfgCapabilities, 1)
	for n := 0; err == nil && n < capsMax && at&^3 != 0; n++ {
		at &^= 3
		var head uint32
		if head, err = c.dev.ReadConfig(at, 2); err != nil {
			break
		}
		if head&0xff == capExpress {
			c.express = true
			return c.clearRelaxed(at + expressControl)
		}
		at = head >> 8
	}
	return err
}

func (c *Channel) clearRelaxed(at uint32) error {
	v, err := c.dev.ReadConfig(at, 2)
	if err != nil || v&relaxedOrdering == 0 {
		return err
	}
	if err := c.dev.WriteConfig(at, 2, v&^relaxedOrdering); err != nil {
		return err
	}
	if v, err = c.dev.ReadConfig(at, 2); err == nil && v&relaxedOrdering != 0 {
		return fmt.Errorf("%w: relaxed ordering cannot be disabled, and data could arrive behind the completion word", ErrUnusable)
	}
	return err
}

// reset stops the channel and clears its errors. When it has returned nil, the channel executes
// nothing.
func (c *Channel) reset() error {
	running := func() bool {
		s := c.dev.Read64(c.base+regStatus) & statusMask
		return s == statusActive || s == statusIdle
	}
	if running() {
		c.dev.Write8(c.base+regCommand, commandSuspend)
		// A channel that does not suspend is reset all the same.
		c.await(obeyTimeout, func() bool { return !running() })
	}
	c.dev.Write32(c.base+regError, c.dev.Read32(c.base+regError))
	if c.express && c.version < versionOwnErrors {
		v, err := c.dev.ReadConfig(cfgErrorInt, 4)
		if err != nil {
			return err
		}
		if err := c.dev.WriteConfig(cfgErrorInt, 4, v); err != nil {
			return err
		}
	}
	c.dev.Write8(c.base+regCommand, commandReset)
	if !c.await(obeyTimeout, func() bool { return c.dev.Read8(c.base+regCommand)&commandReset == 0 }) {
		return errors.New("ioat: the channel does not end its reset")
	}
	return nil
}

// start begins a chain after a reset, with the descriptor behind those that have ended. The
// device counts descriptors from there.
func (c *Channel) start() {
	c.first = c.done
	// The device does not write the completion word before a descriptor has ended.
	c.seen = c.ring.at(c.done+slots-1) | statusArmed
	c.ring.word.Store(c.seen)
	c.dev.Write64(c.base+regChain, c.ring.at(c.done))
	c.dev.Write16(c.base+regControl, controlRun)
	c.dev.Write64(c.base+regComplete, c.ring.completion())
}

// isolate stops the channel and ends the access of the device to memory. Each of its steps
// suffices, so that all are done even if one fails.
func (c *Channel) isolate() error {
	err := c.reset()
	err = errors.Join(err, c.command(0, pciMaster))
	for _, r := range c.mem {
		err = errors.Join(err, c.dev.Unmap(r.mem, r.iova))
	}
	c.mem = nil
	return errors.Join(err, c.dev.Unmap(c.ring.mem, c.ring.iova))
}

// await polls a condition for a bounded time.
func (c *Channel) await(limit time.Duration, ok func() bool) bool {
	for begun := c.opt.now(); !ok(); runtime.Gosched() {
		if c.opt.now().Sub(begun) > limit {
			return ok() // this process may not have run for the whole time
		}
	}
	return true
}
