package platform

// Liu returns the model of the cluster of paper 004.
func Liu() *Model {
	m := &Model{
		Name: "liu", Paper: "004_8566966651ff06f8",
		Machine: "8 SuperMicro P4DL6, 2x 2.4 GHz Xeon, 400 MHz front side bus, InfiniHost MT23108 on PCI-X (004, section 4.1)",
	}
	const mega = 1e6
	m.Latency = m.add("raw latency", 5900, "ns", Stated, "004, section 4.2.1: 5.9 us of RDMA writes at the InfiniBand level")
	raw := m.add("raw bandwidth", 870, "MB/s", Stated, "004, section 4.2.1")
	memcpy := m.add("memory copy", 800, "MB/s", Stated, "004, section 4.4: less than 800 MB/s for large messages")
	m.PerByte = 1e9 / (raw * mega)
	m.Copy = Copies{Write: perByte(1e9 / (memcpy * mega))}
	m.Copy.Send, m.Copy.OneSided = m.Copy.Write, m.Copy.Write
	m.BusPerByte = m.add("memory bus, a byte", 1e9/(memcpy*mega)/2, "ns", Derived, "004, section 4.4: transfers and copies both use the memory bus; a copy reads and writes each byte, a transfer reads or writes it")
	m.add("registration", 0, "ns", Stated, "004, section 5: registrations are cached, and the benchmarks use the same buffers again")
	return m
}
