package platform

import "math"

// tableOf000 is Table 2 of paper 000: uses from which on a registration pays.
var tableOf000 = []struct{ bytes, fast, nonFast, oneSided float64 }{
	{512, 432, 1568, 196},
	{1024, 200, 448, 128},
	{2048, 110, 224, 128},
	{3072, 76, 131, 125},
	{4096, 60, 95, 56},
	{5120, 48, 75, 33},
	{6144, 40, 65, 29},
	{7168, 36, 55, 26},
	{8192, 32, 49, 25},
}

// saving returns C_m - V for one of the table's columns, in units of R: inequality 3 gives
// R/n_min. R is one number: the columns continue their lines across the page boundary at 4 KB,
// so that a second page costs almost nothing.
func saving(column func(i int) float64) Curve {
	var c Curve
	for i, row := range tableOf000 {
		c = append(c, Point{row.bytes, 1 / column(i)})
	}
	return c
}

// scaled returns c times r plus v.
func (c Curve) scaled(r, v float64) Curve {
	s := make(Curve, len(c))
	for i, p := range c {
		s[i] = Point{p.Bytes, p.NS*r + v}
	}
	return s
}

// Rashti returns the model of the cluster of papers 000 and 002. The papers give their costs
// as ratios only; the rate of the adapter's wire turns them into nanoseconds.
func Rashti() *Model {
	m := &Model{
		Name: "rashti", Paper: "000_54b41be9fde59799",
		Machine: "4 Dell PowerEdge 2850, 2x dual-core 2.8 GHz Xeon, ConnectX DDR InfiniBand on x8 PCI Express, MVAPICH2 1.0.3 (000, section 4)",
	}
	fast := saving(func(i int) float64 { return tableOf000[i].fast })
	nonFast := saving(func(i int) float64 { return tableOf000[i].nonFast })
	oneSided := saving(func(i int) float64 { return tableOf000[i].oneSided })

	// In units of R first.
	slope := (fast[1].NS - fast[0].NS) / (fast[1].Bytes - fast[0].Bytes)
	v := slope*fast[0].Bytes - fast[0].NS // C(0) = 0
	share := m.add("copy share at 8 KB", 0.15, "of latency", Stated, "000, section 5.1.1 and equation 6: the theoretical improvement at 8 KB is 15 %%, (C-V)/latency")
	latency8 := fast[8].NS / share
	control := fast.At(9<<10) + v
	wire8 := latency8 - 2*(fast[8].NS+v) - control
	rate := m.add("wire rate", 2, "bytes/ns", Stated, "000, section 4: DDR InfiniBand, 4 lanes of 5 Gb/s with 8b/10b coding, on x8 PCI Express of the same rate")
	r := m.add("R", 8192/rate/wire8, "ns", Derived, "latency(8 KB) = 2 C + control latency + 8 KB / wire rate, all in units of R but the last")

	v = m.add("V", v*r, "ns", Derived, "000, section 3.3.1: C - V is negative below 64 B; the line through 512 B and 1 KB of Table 2, with C(0) = 0, crosses at %.0f B", v/slope)
	m.add("C(8 KB), fast path", fast[8].NS*r+v, "ns", Derived, "000, Table 2, fast path, and inequality 3: C - V = R / n_min")
	m.add("C(8 KB), non-fast path", nonFast[8].NS*r+v, "ns", Derived, "000, Table 2, non-fast path")
	m.add("C(8 KB), one-sided", oneSided[8].NS*r+v, "ns", Derived, "000, Table 2, one-sided")
	m.Copy = Copies{Write: fast.scaled(r, v), Send: nonFast.scaled(r, v), OneSided: oneSided.scaled(r, v)}
	m.Copy.Write = withOrigin(m.Copy.Write)
	m.Copy.Send = withOrigin(m.Copy.Send)
	m.Copy.OneSided = withOrigin(m.Copy.OneSided)
	m.Lookup = v
	m.Register = Curve{{4096, r}}

	m.EagerBytes = uint64(m.add("eager limit", 9<<10, "bytes", Stated, "000, section 2: MVAPICH2 switches to rendezvous at about 9 KB, the optimum of the platform"))
	control = m.add("control latency", control*r, "ns", Derived, "at the optimal switch the two copies of an eager message cost what the two control messages of a rendezvous do: latency of one = C(9 KB)")
	third := math.Round(control / 3)
	m.SendCPU = m.add("processor, sender", third, "ns", Assumed, "not stated: a third of the control latency for each of sender, adapters and receiver")
	m.RecvCPU = m.add("processor, receiver", third, "ns", Assumed, "the same")
	m.Latency = m.add("adapters and wire", control-2*third, "ns", Assumed, "the rest")
	m.PerByte = 1 / rate
	return m
}

// withOrigin prepends the point of no bytes in no time to a curve of copies.
func withOrigin(c Curve) Curve { return append(Curve{{0, 0}}, c...) }
