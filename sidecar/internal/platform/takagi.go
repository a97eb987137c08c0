package platform

// Takagi returns the model of the cluster of paper 001: sixteen processes share one adapter.
func Takagi() *Model {
	m := &Model{
		Name: "takagi", Paper: "001_0fe739a4737799f9",
		Machine: "4 nodes with Xeon E5-2670, one ConnectX-3 for 16 processes, PCI Express 3.0 x8 (001, Table 1)",
	}
	rate := m.add("adapter", 6.79, "bytes/ns", Stated, "001, Table 1: 6.79 GB/s; the bus of 7.88 GB/s is not the slowest")
	clock := m.add("processor clock", 2.601, "GHz", Stated, "001, Table 1")
	cycles := m.add("processor-device communication", 300, "cycles", Assumed, "001, section 1 says hundreds of processor cycles")
	crossing := cycles / clock
	m.Adapter = m.add("adapter, a message", crossing, "ns", Derived, "001, section 4.1.1: a PCI command of the adapter blocks the others; one at each end for each message")
	m.Latency = m.add("latency", 4*crossing, "ns", Derived, "a message crosses the PCI bus four times: doorbell, fetch, placement, completion")
	m.PerByte = 1 / rate
	m.add("processor, a message", 0, "ns", Assumed, "not stated; 16 processes of a node work at the same time, and 001, section 4.2.1 names the shared wire as what they wait for")
	m.EagerBytes = uint64(m.add("eager limit", 64, "bytes", Stated, "001, section 4.1.1: all messages go by rendezvous"))
	return m
}
