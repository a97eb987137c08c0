package ether

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// bytesOf returns the memory of an iovec.
func bytesOf(v *unix.Iovec) string { return string(unsafe.Slice(v.Base, int(v.Len))) }
