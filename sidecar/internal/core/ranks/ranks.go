// Package ranks is the bottom of the core: the applications of the ranks of this sidecar, the
// state of the job, and types that all rooms share. The turn goroutine owns it.
//
// A Session is an attached application: its memory, its request numbers, its Allowance (the bytes
// that it makes the sidecar keep), and the number of references to its memory. It is attached;
// then it has left (Leave) and gets no further completions; and it is gone when the last reference
// to its memory has ended (Unhold). A room claims a request number, names its own state for it if
// it has one, and ends it with Complete or Finish. It holds the session while a frame, a link or a
// peer refers to the session's memory.
//
// Job has the pod of each rank, the ranks and pods that have left, the pods that are in a later
// generation of attachments, and whether the job has failed. Table is the container of the rooms'
// states; an id has a 32-bit generation, so that an id of an earlier state is recognised.
// Immediate is the data in addition to a message's tag, Wait describes a request that has not
// ended, and Traffic counts messages. The package handles no frame. Its only call upwards reports
// a session that is gone.
package ranks

// SessionID numbers the attached applications of this sidecar; numbers are used again
// only when nothing refers to the application's memory any more.
type SessionID uint32
