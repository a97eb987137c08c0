package ranks

// Traffic counts messages and their bytes.
type Traffic struct{ Messages, Bytes uint64 }

// Add counts a message of n bytes.
func (t *Traffic) Add(n uint64) {
	t.Messages++
	t.Bytes += n
}

// Part counts a part of a message. The message counts with its last part.
func (t *Traffic) Part(n uint64, last bool) {
	if t.Bytes += n; last {
		t.Messages++
	}
}

// StepEffort is the cost of one step of a search, in bytes that descriptors make the core read.
const StepEffort = 16
