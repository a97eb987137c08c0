// Package ranks is the bottom of the core: what all its rooms call by the same names, and
// the containers in which they keep what ranks have open. Table holds requests and their
// states under ids that are never used for another one, FIFO holds what waits in order,
// and FairQueue lets the ranks take turns with work that is longer than one step.
// Immediate is the data beside a message's tag, and Wait tells of a request that has not
// ended. Nothing here knows a protocol; the rooms above own what is in the containers.
package ranks

// SessionID numbers the attached applications of this sidecar; numbers are used again
// only when nothing refers to the application's memory any more.
type SessionID uint32
