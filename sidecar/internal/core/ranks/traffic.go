package ranks

// Traffic counts messages and their bytes.
type Traffic struct{ Messages, Bytes uint64 }

// Add counts a message of n bytes.
func (t *Traffic) Add(n uint64) {
	t.Messages++
	t.Bytes += n
}

// Part counts a part of a message, which counts with its last one.
func (t *Traffic) Part(n uint64, last bool) {
	if t.Bytes += n; last {
		t.Messages++
	}
}

// StepEffort is what one step of a search counts among the bytes that descriptors make the
// core read.
const StepEffort = 16
