// Package ranks is the bottom of the core: the applications of the ranks of this sidecar, what is
// known of the job, and the tables of the other rooms. The turn goroutine owns it.
//
// Sessions are the attached applications: their memory, their request numbers, what they
// make the sidecar keep (Allowance), and how many things refer to their memory. A session
// is attached; then it has left (Leave), and gets no completions any more; and it is gone
// when the last reference to its memory has ended (Unhold). A room claims a request number
// for a state of its own and ends it with Complete or Finish; it holds the memory while a
// frame, a link or a peer refers to it. Job says which ranks and pods have left, and whether the
// job has failed. Table holds states under ids that are never used again. Immediate is the data
// in addition to a message's tag, Wait describes a request that has not ended, and Traffic counts messages.
// Nothing here knows a protocol. The only call upwards reports a session that is gone.
package ranks

// SessionID numbers the attached applications of this sidecar; numbers are used again
// only when nothing refers to the application's memory any more.
type SessionID uint32
