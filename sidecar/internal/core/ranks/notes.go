package ranks

// NoteKind is the kind of a protocol event in the flight recorder.
type NoteKind uint8

// Kinds of notes.
const (
	NotePost   NoteKind = 1 + iota // frame given to the link
	NoteArrive                     // frame complete
	NoteUp                         // connection up; seq: last frame received
	NoteDown                       // connection lost
	NoteFailed                     // the job failed
	NoteColl                       // a rank has begun a collective; tag: its coll.Kind, size: bytes, seq: its number in the communicator
	NoteRecv                       // a receive of a rank waits; peer: the pod of its source, or -1; size: the buffer's; seq: the source
)
