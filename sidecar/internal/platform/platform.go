// Package platform holds what the papers state about the machines that they
// measured on, as cost models for virtual time (package virtual). Each number is
// beside the place that states it or the arithmetic that it follows from; none is
// fitted to a result of the protocols that are compared. What a paper does not say
// is listed as assumed, with the reason for the value. It is pure.
package platform

import "fmt"

// Kind says how a number is known.
type Kind string

// Kinds.
const (
	Stated  Kind = "stated"  // the paper says so
	Derived Kind = "derived" // it follows from what the paper says
	Assumed Kind = "assumed" // the paper does not say
)

// Constant is one number of a model.
type Constant struct {
	Name   string
	Value  float64
	Unit   string
	Kind   Kind
	Source string // section, table or figure, and the arithmetic
}

// Curve is a cost over message size: lines between points, which are in order.
// Beyond the last point the last line goes on, before the first one the first line,
// and no cost is less than 0.
type Curve []Point

// Point is the cost of so many bytes.
type Point struct{ Bytes, NS float64 }

// At is the cost of n bytes, in nanoseconds.
func (c Curve) At(n uint64) float64 {
	switch len(c) {
	case 0:
		return 0
	case 1:
		return c[0].NS
	}
	i := 1
	for i < len(c)-1 && c[i].Bytes < float64(n) {
		i++
	}
	a, b := c[i-1], c[i]
	return max(0, a.NS+(float64(n)-a.Bytes)/(b.Bytes-a.Bytes)*(b.NS-a.NS))
}

// perByte is a cost in proportion to the size.
func perByte(ns float64) Curve { return Curve{{0, 0}, {1 << 20, ns * (1 << 20)}} }

// Copies by path: which copy of a message is meant depends on who does it.
type Copies struct{ Write, Send, OneSided Curve }

// Model is what a machine costs, in nanoseconds. Zero costs are free.
type Model struct {
	Name      string
	Paper     string // file of the paper
	Machine   string
	Constants []Constant

	Copy     Copies // by the processor, into or out of registered memory
	Lookup   float64
	Register Curve // pinning so many bytes

	SendCPU float64 // processor of the sender, for a message
	RecvCPU float64 // processor of the receiver, for a message
	Latency float64 // from one adapter to the other
	PerByte float64 // of the slowest of wire and input/output buses
	Adapter float64 // that an adapter is busy with a message, at each end

	// A memory bus that copies and transfers share: a copy moves each byte over it
	// twice, at BusPerByte each time, and a transfer once. 0: they do not compete.
	BusPerByte float64

	EagerBytes uint64 // largest eager message; 0: the engine's own
}

func (m *Model) say(name string, value float64, unit string, kind Kind, format string, args ...any) float64 {
	m.Constants = append(m.Constants, Constant{name, value, unit, kind, fmt.Sprintf(format, args...)})
	return value
}

// All returns the models, by paper.
func All() []*Model { return []*Model{Rashti(), Takagi(), Liu()} }
