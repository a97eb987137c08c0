// Package corpus records the inputs of the core of a real sidecar, and plays them to
// another build of the core: a refactoring answers each input with the same actions (make
// replay).
//
// A sidecar that is built with the tag corpus has a Recorder in place of its core. The
// recording has every input in order: descriptors, frames, connections, timers, and the
// results of calls of core.Ports. Of memory it has the bytes that the core has read and
// that were written by others, as changes before the input in which they were read. Inputs
// that change nothing, such as empty polls, are left out.
//
// A player feeds a recording to one core. Of the actions that follow each input (frames,
// completions, registrations, remote accesses, returned errors) it computes a hash of 16
// bits, a step. Two builds with the same steps have behaved in the same way. Texts are not
// actions: reasons of failures have a hash of their own. The data of messages is not part
// of actions either: the simulator compares it byte by byte.
package corpus
