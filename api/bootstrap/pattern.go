package bootstrap

import (
	"fmt"
	"strconv"
	"strings"
)

// Pattern describes pods that differ only by their numbers. It is short because each of
// thousands of sidecars reads the whole document.
type Pattern struct {
	Name        string `json:"name"`    // with %d for the number
	Address     string `json:"address"` // with %d for the number
	RanksPerPod int    `json:"ranksPerPod"`
}

const number = "%d"

// count returns the number of pods of a job with the given number of ranks. ranksPerPod
// is not trusted: ranks+RanksPerPod may overflow an int.
func (p *Pattern) count(ranks int) int { return (ranks-1)/p.RanksPerPod + 1 }

// pods returns the pods of a job with the given number of ranks. The last pod has the
// remaining ranks.
func (p *Pattern) pods(ranks int) []Pod {
	list := make([]Pod, 0, p.count(ranks))
	for i := range p.count(ranks) {
		first, n := i*p.RanksPerPod, strconv.Itoa(i)
		list = append(list, Pod{
			Name: strings.ReplaceAll(p.Name, number, n), Address: strings.ReplaceAll(p.Address, number, n),
			FirstRank: first, Ranks: min(p.RanksPerPod, ranks-first),
		})
	}
	return list
}

// patternMax bounds the texts of a pattern, in bytes, because each pod's texts are as long.
const patternMax = 512

// expand makes the list of pods that a pattern describes.
func (d *Document) expand() error {
	p := d.Pattern
	if p == nil {
		return nil
	}
	switch {
	case len(d.Pods) > 0:
		return fmt.Errorf("%w: pods and pattern: want one of them", ErrInvalid)
	case p.RanksPerPod < 1 || d.Ranks < 1 || d.Ranks > RanksMax:
		return fmt.Errorf("%w: pattern of %d ranks a pod for %d ranks, want at least 1 and 1 to %d", ErrInvalid, p.RanksPerPod, d.Ranks, RanksMax)
	case len(p.Name) > patternMax || len(p.Address) > patternMax || strings.Count(p.Address, number) > 1 || strings.Count(p.Name, number) > 1:
		return fmt.Errorf("%w: pattern.name and pattern.address have at most %d characters and one %s", ErrInvalid, patternMax, number)
	}
	if pods := p.count(d.Ranks); pods*(len(p.Name)+len(p.Address)) > 8*SizeMax {
		return fmt.Errorf("%w: pattern stands for %d pods with names and addresses of over %d bytes", ErrInvalid, pods, 8*SizeMax)
	}
	d.Pods, d.Pattern = p.pods(d.Ranks), nil
	return nil
}
