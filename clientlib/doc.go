// Package outrigger is the client library of Outrigger: message passing for an
// application whose sidecar does the communication.
//
//	s, err := outrigger.Open(ctx, outrigger.Config{}) // finds its sidecar by environment
//	defer s.Close()
//	world := s.World()
//	data, err := outrigger.Alloc[float64](s, 1<<20)   // memory shared with the sidecar
//	if world.Rank() == 0 {
//		err = outrigger.Send(ctx, world, data, 1, 7)
//	} else {
//		st, err := outrigger.Recv(ctx, world, data, outrigger.AnySource, outrigger.AnyTag)
//	}
//
// Any slice of numbers can be sent and received; Layout and Indexed name some of its
// elements, Struct is for slices of structs. One from Alloc travels without
// a copy in the application; any other is staged through shared memory by this
// library, and moves on only while the application is inside a call of it.
// Everything that lies in Alloc memory, collectives included, moves on while
// the application computes.
//
// All functions may be called from any goroutine. But collectives of one
// communicator are matched by their order, which is the same on all ranks: goroutines
// that each call some need a communicator each (Comm.Dup). Functions that wait take a
// context; when it ends they return its error. Errors are of type *Error and
// say which rank, peer, tag and size they are about.
package outrigger
