package controller

// limiter bounds the number of concurrent operations of the jobs of all namespaces. A
// namespace never holds more slots than are free, so that some are left for the others.
// The owner of a limiter synchronizes access.
type limiter struct {
	most  int // number of slots; 0 means one
	taken int
	held  map[string]int // number of slots that each namespace holds
}

// acquire takes a slot for a namespace. It returns false if the namespace may not hold
// another one.
func (l *limiter) acquire(namespace string) bool {
	if max(l.most, 1)-l.taken <= l.held[namespace] {
		return false
	}
	if l.held == nil {
		l.held = map[string]int{}
	}
	l.taken++
	l.held[namespace]++
	return true
}

// release returns a slot that acquire has taken.
func (l *limiter) release(namespace string) {
	l.taken--
	if l.held[namespace]--; l.held[namespace] == 0 {
		delete(l.held, namespace)
	}
}
