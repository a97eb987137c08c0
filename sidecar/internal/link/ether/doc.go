// Package ether is the link over Ethernet without RDMA: small frames go in packets of a
// carrier, and large payloads go by the TCP connection, which has the higher bandwidth, or
// are pulled by packets if the configuration says so (pull.go). It follows Open-MX (paper 003 §2), whose
// packets the kernel passes to the library without a transport of its own.
//
// The carrier is a UDP socket (udp.go), which needs no privilege and passes routers, or a
// packet socket that the node's agent makes (raw.go), with less work for the kernel and a ring
// that is read without system calls, for pods on one Ethernet segment. A connection has these
// parts:
//
//	frames          packets with numbers, acknowledgements and a congestion window
//	                (window.go); each packet is authenticated, and encrypted if the job's
//	                data is (packet.go)
//	large payloads  the bytes of the socket that package peers has made; the frame's
//	                header is in the packets, and says that its payload is in the socket
//	                (pipe.go)
//	sign of life    the socket: the connection ends when it ends
//
//	sender                                  receiver
//	  packet 7: Eager with 8 bytes ───────►  Deliver
//	  packet 8: Data, "payload by socket" ─►  Place, and the packets behind wait
//	  1 MiB ══════════ socket ════════════►  Placed; then packet 9
//	         ◄──── all before 10 have come
//
// The two sidecars meet while package peers connects them (meet.go): each sends its port or
// hardware address, a session number and a secret inside the control connection, and both
// probe the path with packets of several sizes. If no probe comes back, for example because a
// policy admits TCP alone or the pods are in different segments, or the carriers differ, the
// connection uses Config.Stream.
//
// The sidecar makes one Link, and the engine polls it.
package ether
