// Package ioatmodel simulates an I/OAT device (Intel CBDMA) at the level of its registers, for
// tests. A Model executes chains of descriptors on memory of this process as package ioat maps
// it, or on the memory of a virtual machine (Serve), in which Linux's own driver judges the
// model.
//
// The model is strict: an address that is not mapped, a length beyond XFERCAP, an opcode or an
// address of a descriptor that is invalid, or a completion address that is not aligned halts
// the channel with the error's bit in CHANERR. Errors survive a reset, and a channel with
// errors does not start. A reset clears the addresses and CHANCTRL. Descriptors overlap: the
// source of the next one is read before the destination of the present one is written, unless
// the next one has the fence bit. While relaxed ordering is enabled, the completion word is
// written before the data.
//
// Config.Faults disturbs the device. Interrupts are not simulated, and time is not either: a
// copy takes as long as the processor needs for it.
package ioatmodel
