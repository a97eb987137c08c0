// Package platform holds the numbers that the papers state about their machines, as cost
// models for virtual time (package virtual). Each number has the section that states it,
// or the arithmetic that derives it; none is fitted to a result of the protocols that are
// compared. A number that a paper does not state is listed as assumed, with the reason
// for its value. The package is pure.
package platform

import "fmt"

// Kind is the origin of a number.
type Kind string

// Kinds.
const (
	Stated  Kind = "stated"  // the paper states it
	Derived Kind = "derived" // the value follows from statements of the paper
	Assumed Kind = "assumed" // the paper does not state it
)

// Constant is one number of a model.
type Constant struct {
	Name   string
	Value  float64
	Unit   string
	Kind   Kind
	Source string // section, table or figure, and the arithmetic
}

// Curve is a cost over message size: lines between points, in order of size. The last
// line continues beyond the last point, and the first one before the first point; no cost
// is less than 0.
type Curve []Point

// Point is the cost of a number of bytes.
type Point struct{ Bytes, NS float64 }

// At returns the cost of n bytes, in nanoseconds.
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

// perByte returns a cost in proportion to the size.
func perByte(ns float64) Curve { return Curve{{0, 0}, {1 << 20, ns * (1 << 20)}} }

// Copies are the costs of a copy by path: which component makes it.
type Copies struct{ Write, Send, OneSided Curve }

// Model is the costs of a machine, in nanoseconds. A zero cost is free.
type Model struct {
	Name      string
	Paper     string // file of the paper
	Machine   string
	Constants []Constant

	Copy     Copies // copies by the processor, into or out of registered memory
	Lookup   float64
	Register Curve // registering a number of bytes

	SendCPU float64 // processor of the sender, for a message
	RecvCPU float64 // processor of the receiver, for a message
	Latency float64 // time from one adapter to the other
	PerByte float64 // of the slowest of wire and input/output buses
	Adapter float64 // time that an adapter is busy with a message, on each side

	// BusPerByte is the time of the memory bus that copies and transfers share: a copy
	// moves each byte over it twice, and a transfer once. 0: they do not compete.
	BusPerByte float64

	EagerBytes uint64 // largest eager message; 0: the engine's default

	Pull *Pull // nil: adapters read remote memory by themselves
}

// add records a constant of the model and returns its value.
func (m *Model) add(name string, value float64, unit string, kind Kind, format string, args ...any) float64 {
	m.Constants = append(m.Constants, Constant{name, value, unit, kind, fmt.Sprintf(format, args...)})
	return value
}

// All returns the models, by paper.
func All() []*Model { return []*Model{Rashti(), Takagi(), Goglin(), Liu()} }
