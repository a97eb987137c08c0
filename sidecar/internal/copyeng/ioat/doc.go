// Package ioat copies memory by a channel of Intel's I/OAT engine (CBDMA), which the processors
// of older servers have: Sandy Bridge to Ice Lake. The kernel's driver offers such a channel to
// no program, so the package drives the device itself, through VFIO.
//
// # Memory
//
// A device reads and writes only memory that Channel.Map has mapped for it. VFIO pins that
// memory, and the kernel counts it against the limit of locked memory (RLIMIT_MEMLOCK), in
// addition to OwnBytes for the descriptors. Memory that could not be mapped is still copied, by
// the processor.
//
// # Order
//
// Ends are reported in the order of submission. In the device, descriptors of a chain may
// overlap in time. A copy that touches memory of a pending copy is therefore given to the
// device only when the pending copies have ended, and so is any copy behind a copy that the
// processor has to make.
//
// # Failure
//
// No copy is lost, and none is reported as failed:
//
//   - A channel that halts names the descriptor before the failed one. The processor makes the
//     failed copy, and the channel is reset and continues behind it.
//   - A doorbell that has no effect is rung once more, and then the channel is reset.
//   - A completion word that the device has not written is replaced by the channel's status
//     register. Reading a register makes all earlier writes of the device visible.
//   - If a channel fails after three resets without having ended a copy, or if it cannot be
//     reset, it is dead. It then loses its access to memory: bus mastering is disabled, and all
//     mappings are removed. Only afterwards the processor makes the copies that are pending, so
//     that the device cannot write to them later. Err says why; Submit continues to work, and
//     the processor copies.
//
// A reset waits for the device, up to 40 ms on the engine's goroutine; it is not waited for while
// copies succeed. What the processor copies is counted in Stats.
//
// # What it was tested on
//
// Package ioatmodel is a model of the device at the level of its registers. Tests run on the
// model in this process, with the race detector and with faults. In virtual machines
// (e2e/rdmavm), Linux's own driver passes its self-test on the model, and this package drives
// the model through VFIO. The package was never run on hardware.
package ioat
