package platform

// Pull is the costs of remote reads in fragments, which a processor of the receiver handles
// (paper 003, sections 2.2 and 3.1).
type Pull struct {
	Fragment uint64  // bytes
	Block    int     // fragments of a request
	Blocks   int     // requests that are under way
	Handle   float64 // processor of the receiver, for a fragment without its copy
	Copy     float64 // ns for a byte, of a copy by the processor out of memory
	Cached   float64 // the same, out of the cache
	Submit   float64 // processor, for a descriptor of the copy engine
	Chunk    uint64  // bytes that a descriptor copies, on the average
	Engine   float64 // ns for a byte, of a copy by the engine
}

// Goglin returns the model of the two machines of paper 003.
func Goglin() *Model {
	m := &Model{
		Name: "goglin", Paper: "003_c8ccf7ea3a37d95b",
		Machine: "2 nodes with two quad-core 2.33 GHz Xeon E5345, Intel 5000X chipset with I/OAT, Myri-10G in Ethernet mode (003, section 4)",
	}
	const mega, giga = 1 << 20, 1 << 30
	wire := m.add("wire", 1186, "MiB/s", Stated, "003, footnote 2: 9,953 Mbit/s")
	m.PerByte = 1e9 / (wire * mega)
	copied := m.add("copy by the processor", 1.6, "GiB/s", Stated, "003, section 4.1; figure 10 has 1.2 for messages larger than the cache")
	cached := m.add("copy in the cache", 12, "GiB/s", Stated, "003, section 4.1: up to")
	engine := m.add("copy by I/OAT", 2.4, "GiB/s", Stated, "003, section 4.1, in pages of 4 KiB")
	submit := m.add("submission", 350, "ns", Stated, "003, section 4.1, for a descriptor")
	fragment := m.add("fragment", 8<<10, "bytes", Assumed, "not stated: two pages, which a frame of 9,000 bytes holds")
	p := &Pull{Fragment: uint64(fragment), Submit: submit, Copy: 1e9 / (copied * giga), Cached: 1e9 / (cached * giga), Engine: 1e9 / (engine * giga)}
	p.Block = int(m.add("block", 8, "fragments", Stated, "003, footnote 3"))
	p.Blocks = int(m.add("requests under way", 2, "blocks", Stated, "003, footnote 3"))
	p.Chunk = uint64(m.add("descriptor", 4096/1.5, "bytes", Derived, "003, section 4.1: one or two for a page"))
	rate := m.add("receiver without I/OAT", 800, "MiB/s", Stated, "003, section 2.2 and figure 3: saturates near")
	p.Handle = m.add("processor, a fragment", fragment*(1e9/(rate*mega)-p.Copy), "ns", Derived, "a fragment at 800 MiB/s, less its copy at 1.6 GiB/s")
	m.Pull = p

	m.Copy = Copies{Write: perByte(p.Copy)}
	m.Copy.Send, m.Copy.OneSided = m.Copy.Write, m.Copy.Write
	m.SendCPU = m.add("processor, sender", 1000, "ns", Assumed, "not stated")
	m.RecvCPU = m.add("processor, receiver", 1000, "ns", Assumed, "not stated")
	m.Latency = m.add("adapters and wire", 5000, "ns", Assumed, "not stated; it decides the curves below 128 KiB, and not those of large messages")
	m.add("pinning of memory", 0, "ns", Assumed, "not stated; 003, section 4.4 finds it much less important than the copy")
	m.EagerBytes = uint64(m.add("eager limit", 32<<10-1, "bytes", Stated, "003, sections 4.2 and 4.3: messages of 32 kB are large"))
	return m
}
