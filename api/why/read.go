package why

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// Bounds of the data that is accepted about a rank from another program.
const (
	waitsMax = 8
	pastMax  = 16
	forMax   = 16
	nameMax  = 32
	// rankMax bounds the JSON of a rank, in bytes. A rank with the maximum that these bounds
	// allow takes about 10,000.
	rankMax = 16 << 10
)

// Read reads at most most ranks of a pod from the answer of its sidecar. An untrusted program
// may answer in place of the sidecar: two bytes of JSON can become a Wait, which takes a
// hundred times as much memory. Ranks are therefore read one by one, and no more is kept of
// each than a sidecar sends.
func Read(from io.Reader, most int) ([]Rank, error) {
	part := &io.LimitedReader{R: from, N: rankMax}
	d := json.NewDecoder(part)
	switch begin, err := d.Token(); {
	case err != nil:
		return nil, err
	case begin == nil:
		return nil, nil // the pod has no ranks
	case begin != json.Delim('['):
		return nil, errors.New("want a list of ranks")
	}
	var ranks []Rank
	for part.N = rankMax; d.More(); part.N = rankMax {
		if len(ranks) == most {
			return nil, fmt.Errorf("more than the %d ranks of the pod", most)
		}
		var text json.RawMessage
		err := d.Decode(&text)
		if len(text) > rankMax || part.N == 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("a rank of more than %d bytes", rankMax)
		}
		if err != nil {
			return nil, err
		}
		var r Rank
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, err
		}
		ranks = append(ranks, r.bounded())
	}
	_, err := d.Token() // the token is the end of the list
	return ranks, err
}

// bounded returns a copy of the rank with no more in it than a sidecar sends.
func (r Rank) bounded() Rank {
	r.State, r.Awaits = word(r.State), strings.Map(printable, strings.ToValidUTF8(strings.Clone(r.Awaits[:min(len(r.Awaits), AwaitsMax)]), "?"))
	r.Waits, r.Here, r.Past, r.Locks = few(r.Waits, waitsMax), few(r.Here, waitsMax), few(r.Past, pastMax), few(r.Locks, waitsMax)
	for i := range r.Waits {
		w := &r.Waits[i]
		w.Kind, w.Name, w.Order, w.For, w.MPI = word(w.Kind), word(w.Name), word(w.Order), few(w.For, forMax), word(w.MPI)
		w.Repeats = word(w.Repeats)
	}
	for i := range r.Here {
		r.Here[i].MPI, r.Here[i].Name = word(r.Here[i].MPI), word(r.Here[i].Name)
	}
	for i := range r.Past {
		b := &r.Past[i]
		b.Name, b.Order = word(b.Name), word(b.Order)
	}
	for i := range r.Locks {
		r.Locks[i].Holders = few(r.Locks[i].Holders, waitsMax)
	}
	return r
}

// AwaitsMax bounds the text about what a sidecar waits for, in bytes.
const AwaitsMax = 512

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

// word returns a copy of the beginning of a text, and few copies the first elements of a list.
// Without the copies, the whole text or list would stay in memory.
func word(s string) string { return strings.Clone(s[:min(len(s), nameMax)]) }

func few[T any](all []T, most int) []T { return slices.Clone(all[:min(len(all), most)]) }
