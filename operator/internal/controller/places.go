package controller

// places are what few may do at once, for the jobs of all namespaces: a namespace never
// has more of them than are free, so that it leaves some for the others. Their owner
// guards them.
type places struct {
	most  int // 0: one
	taken int
	held  map[string]int // by namespace
}

// take takes a place, if the namespace may have one more.
func (p *places) take(namespace string) bool {
	if max(p.most, 1)-p.taken <= p.held[namespace] {
		return false
	}
	if p.held == nil {
		p.held = map[string]int{}
	}
	p.taken++
	p.held[namespace]++
	return true
}

// give gives one back that was taken.
func (p *places) give(namespace string) {
	p.taken--
	if p.held[namespace]--; p.held[namespace] == 0 {
		delete(p.held, namespace)
	}
}
