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
// Any slice of numbers can be sent and received; Layout and Indexed select some of its elements,
// and Struct is for slices of structs. A slice from Alloc is sent and received without a copy in the
// application. This library stages any other slice through shared memory, and such a message makes
// progress only while the application is in a call of the library. Messages and collectives whose
// memory is from Alloc make progress while the application computes.
//
// All functions may be called from any goroutine. Collectives of one communicator are matched by
// their order, which must be the same on all ranks: goroutines that call collectives concurrently
// need a communicator each (Comm.Dup). Functions that wait have a context; if it ends they return
// its error. Errors are of type *Error and name the rank, peer, tag and size.
//
// The state of a session is one Session with its tables: operations (operation.go), the slab
// (slab.go) and the arena (arena.go). A call submits descriptors (submit.go), completions are
// handled by progress (progress.go), and a call that waits polls, yields and sleeps (wait.go).
package outrigger
