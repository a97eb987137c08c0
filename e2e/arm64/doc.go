// Package arm64 starts the programs of the arm64 images, on any machine, under
// QEMU's emulation of a process. make test-arm64 writes the images first.
package arm64
