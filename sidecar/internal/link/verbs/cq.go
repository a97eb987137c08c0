package verbs

// Limits of the completions that one Poll handles.
const (
	pollBatch  = 64  // completions polled by one call
	pollBudget = 256 // completions handled by one Poll
)

// completionQueue is the state of the device's completion queue.
type completionQueue struct {
	batch     [pollBatch]completion
	stash     []completion // polled, to be handled by the next Poll
	spare     []completion
	handled   uint64 // number of completions handled
	emptyAt   uint64 // number of the last poll that emptied the queue
	skipPolls int    // calls of Poll that need not poll the device (cast.go)
	polled    bool   // the device was polled since skipPolls was last set
}
