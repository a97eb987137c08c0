package verbs

// Limits of what one Poll takes out of the queue.
const (
	pollBatch  = 64  // completions of one call
	pollBudget = 256 // and of one Poll
)

// completionQueue is what was taken out of the device's queue, and how far that has come.
type completionQueue struct {
	batch   [pollBatch]completion
	stash   []completion // taken out, to be handled by the next Poll
	spare   []completion
	handled uint64 // completions
	dry     uint64 // number of the last look at the queue that left none there
	unasked int    // so many calls of Poll need not ask the device (cast.go)
	asked   bool   // it was, since that was so last
}
