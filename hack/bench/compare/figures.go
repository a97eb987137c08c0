package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// The tests of the method in mpibench.c.
const (
	toItself  = "self"        // microseconds from a send of a rank to itself to the receipt
	latency   = "latency"     // microseconds of half a round trip
	bandwidth = "bandwidth"   // 10^6 bytes per second
	rate      = "rate"        // messages per second
	overlap   = "overlap"     // part of the transfer time that overlaps with computation
	together  = "collectives" // microseconds until the last rank has completed the collective
)

// key names one figure. Side and mode are empty except for overlap, op except for
// collectives.
type key struct {
	peer, test string
	op         string
	bytes      int
	side, mode string
}

// figures holds the values of each figure, one for each round.
type figures map[key][]float64

// median returns the median of a figure over all rounds, and whether it has values.
func (f figures) median(k key) (float64, bool) {
	if len(f[k]) == 0 {
		return 0, false
	}
	return median(f[k]), true
}

// line is one JSON line. The field of the unit has the value.
type line struct {
	Peer, Test, Op, Side, Mode string
	Bytes                      int
	Us                         *float64
	MbS                        *float64 `json:"mb_s"`
	MsgS                       *float64 `json:"msg_s"`
	Overlap                    *float64
}

func (l line) value() *float64 {
	switch l.Test {
	case latency, toItself, together:
		return l.Us
	case bandwidth:
		return l.MbS
	case rate:
		return l.MsgS
	case overlap:
		return l.Overlap
	}
	return nil
}

// readFigures reads JSON lines until the end. Unknown fields are ignored, so that a
// peer may print more than is compared. An unknown test or a line without its value is
// an error, because it would otherwise be lost silently.
func readFigures(r io.Reader) (figures, error) {
	f := figures{}
	in := bufio.NewScanner(r)
	for number := 1; in.Scan(); number++ {
		text := bytes.TrimSpace(in.Bytes())
		if len(text) == 0 {
			continue
		}
		k, v, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		f[k] = append(f[k], v)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	return f, nil
}

func parseLine(text []byte) (key, float64, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return key{}, 0, fmt.Errorf("not a JSON object of a benchmark: %w", err)
	}
	if l.Peer == "" {
		return key{}, 0, errors.New(`"peer" is missing`)
	}
	v := l.value()
	if v == nil {
		return key{}, 0, fmt.Errorf("test %q of %s has no value under its unit (us, mb_s, msg_s or overlap)", l.Test, l.Peer)
	}
	k := key{peer: l.Peer, test: l.Test, op: l.Op, bytes: l.Bytes, side: l.Side, mode: l.Mode}
	return k, *v, nil
}

// median returns the middle value, or the mean of the two middle ones.
func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
