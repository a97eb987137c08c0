package ioat

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// regionsMax bounds the regions of a channel. The kernel allows a container 65,535 mappings.
const regionsMax = 16384

// region is memory that the device can access.
type region struct {
	mem        []byte
	start, end uintptr
	iova       uint64
}

// regions are the regions of a channel, sorted by address. They do not overlap.
type regions []region

// after returns the index of the first region that ends after at.
func (rs regions) after(at uintptr) int {
	i, _ := slices.BinarySearchFunc(rs, at, func(r region, at uintptr) int {
		if r.end <= at {
			return -1
		}
		return 1
	})
	return i
}

// translate returns the device's address for an address of this process, and the number of
// bytes from there that have consecutive addresses; 0 if the address is not mapped.
func (rs regions) translate(at uintptr) (iova, n uint64) {
	i := rs.after(at)
	if i == len(rs) || rs[i].start > at {
		return 0, 0
	}
	r := &rs[i]
	return r.iova + uint64(at-r.start), uint64(r.end - at)
}

// cover reports whether all bytes of mem are mapped, by one region or by adjacent ones.
func (rs regions) cover(mem []byte) bool {
	at := address(mem)
	end := at + uintptr(len(mem))
	for i := rs.after(at); at < end; i++ {
		if i == len(rs) || rs[i].start > at {
			return false
		}
		at = rs[i].end
	}
	return true
}

// errMapped reports memory that is mapped already, in whole or in part.
var errMapped = errors.New("ioat: a part of the memory is mapped already")

// add maps mem for the device and enters it.
func (rs *regions) add(d Memory, mem []byte) error {
	start := address(mem)
	end := start + uintptr(len(mem))
	i := rs.after(start)
	switch {
	case len(mem) == 0:
		return errors.New("ioat: memory of no bytes cannot be mapped")
	case i < len(*rs) && (*rs)[i].start < end:
		return errMapped
	case len(*rs) == regionsMax:
		return fmt.Errorf("ioat: more than %d regions are mapped", regionsMax)
	}
	iova, err := d.Map(mem)
	if err != nil {
		return err
	}
	*rs = slices.Insert(*rs, i, region{mem: mem, start: start, end: end, iova: iova})
	return nil
}

// take removes the region that begins where mem begins. It does not unmap.
func (rs *regions) take(mem []byte) (region, error) {
	start := address(mem)
	i, ok := slices.BinarySearchFunc(*rs, start, func(r region, at uintptr) int { return cmp.Compare(r.start, at) })
	if !ok || (*rs)[i].end != start+uintptr(len(mem)) {
		return region{}, errors.New("ioat: the memory is not mapped")
	}
	r := (*rs)[i]
	*rs = slices.Delete(*rs, i, i+1)
	return r, nil
}
