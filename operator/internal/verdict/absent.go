package verdict

import "time"

// podsPatience is how long the Job controller is given to make the pods. Of who
// refuses them, such as a quota or Pod Security, only its events tell.
const podsPatience = 30 * time.Second

// absent is how many pods are still to be made, and for how long that is
// nothing to tell of.
func (o *Observation) absent() (n int, left time.Duration) {
	if o.Batch == nil {
		return 0, 0
	}
	since := o.Batch.CreationTimestamp.Time
	if t := o.Batch.Status.StartTime; t != nil { // it may have been suspended
		since = t.Time
	}
	for _, s := range o.podStates() {
		if s == podAbsent {
			n++
		}
	}
	return n, podsPatience - o.Now.Sub(since)
}
