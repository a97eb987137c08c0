package sriov

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Do performs one step on a function that Look has returned.
func (h *Host) Do(f *Function, s Step) error {
	var err error
	switch s.Kind {
	case Count:
		err = h.make(f, s)
	case Reset:
		err = h.reset(f, s.VF)
	default:
		err = h.Links.Write(f.Interface, s)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

// make changes the number of functions. The kernel accepts a number only if there are none. If
// the new functions must be quiet, drivers are not bound while they are made; afterwards, the
// setting is restored in every case.
func (h *Host) make(f *Function, s Step) error {
	dir := filepath.Join(h.Root, pciDevices, f.Address)
	if f.Count > 0 {
		if err := h.setNumber(dir, 0); err != nil {
			return err
		}
	}
	err := h.fresh(dir, s)
	if err == nil || f.Count == 0 {
		return err
	}
	// The previous functions are better than none.
	if back := h.fresh(dir, Step{Kind: Count, Number: f.Count, Quiet: s.Quiet}); back != nil {
		return errors.Join(err, fmt.Errorf("and the %d functions that there were could not be made again: %w", f.Count, back))
	}
	return fmt.Errorf("%w; the %d functions that there were have been made again", err, f.Count)
}

// fresh makes functions if there are none.
func (h *Host) fresh(dir string, s Step) error {
	if !s.Quiet {
		return h.setNumber(dir, s.Number)
	}
	probe := filepath.Join(dir, "sriov_drivers_autoprobe")
	if err := h.Attributes.Write(probe, "0"); err != nil {
		return err
	}
	return errors.Join(
		h.setNumber(dir, s.Number),
		h.Attributes.Write(probe, "1"),
	)
}

func (h *Host) setNumber(dir string, n int) error {
	err := h.Attributes.Write(filepath.Join(dir, "sriov_numvfs"), strconv.Itoa(n))
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: the physical function has no driver, or one without SR-IOV (Linux, sriov_numvfs_store)", err)
	}
	return err
}

// reset binds the driver of a function again. The kernel does not report whether a driver
// accepted the function.
func (h *Host) reset(f *Function, vf int) error {
	if vf >= len(f.VFs) {
		return fmt.Errorf("the card has %d virtual functions", len(f.VFs))
	}
	v := &f.VFs[vf]
	if v.Driver != "" {
		if err := h.Attributes.Write(filepath.Join(h.Root, pciDevices, v.Address, "driver", "unbind"), v.Address); err != nil {
			return err
		}
	}
	if err := h.Attributes.Write(filepath.Join(h.Root, "sys/bus/pci/drivers_probe"), v.Address); err != nil {
		return err
	}
	if _, err := base(filepath.Join(h.Root, pciDevices, v.Address, "driver")); err != nil {
		return fmt.Errorf("no driver has taken %s; the kernel's log says why", v.Address)
	}
	return nil
}
