package main

import (
	"encoding/json"
	"slices"
)

// judge returns the number of values that the target of a row bounds, and the columns of the
// values that miss the target. Of several numbers in a cell, the worst counts.
func (r row) judge(columns []string) (judged int, missed []string) {
	for i, v := range r.Values {
		if len(r.Target.Of) > 0 && !slices.Contains(r.Target.Of, columns[i]) {
			continue
		}
		numbers := v.bounded(r.Target.Ratio)
		if len(numbers) == 0 {
			continue
		}
		judged++
		if r.Target.Missed || slices.ContainsFunc(numbers, r.Target.misses) {
			missed = append(missed, columns[i])
		}
	}
	return judged, missed
}

// bounded returns the numbers of a cell that a target bounds. If the cell has a median, the
// least and the greatest value of the rounds are not among them.
func (v value) bounded(ratio bool) []json.Number {
	var numbers []json.Number
	switch {
	case ratio:
		numbers = []json.Number{v.ratio}
	case v.number != "":
		numbers = []json.Number{v.number}
	case v.least != "":
		numbers = []json.Number{v.least, v.most}
	default:
		numbers = v.single
	}
	return slices.DeleteFunc(slices.Clone(numbers), func(n json.Number) bool { return n == "" })
}

func (t *target) misses(n json.Number) bool {
	have := float(n)
	if t.AtMost != nil {
		return have > float(*t.AtMost)
	}
	return have < float(*t.AtLeast)
}

// float returns a number that the JSON decoder has checked.
func float(n json.Number) float64 {
	f, err := n.Float64()
	if err != nil {
		panic(err) // not reached: a json.Number is a number, and numbers of results fit into a float64
	}
	return f
}

func (t *target) String() string {
	if t.AtMost != nil {
		return "at most " + string(*t.AtMost)
	}
	return "at least " + string(*t.AtLeast)
}
