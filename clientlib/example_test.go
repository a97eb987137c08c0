package outrigger_test

import (
	"context"
	"fmt"
	"log"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// A whole program. `outrigger run -n 2 -- ./program` prints:
//
//	[0] rank 0 of 2: the ranks add up to 1
//	[1] rank 1 of 2: the ranks add up to 1
//
// The other examples leave out what is around the work: job opens a session, hands
// its world over, and closes it.
func Example() {
	ctx := context.Background()
	s, err := outrigger.Open(ctx, outrigger.Config{}) // outrigger run has set the socket in the environment
	if err != nil {
		log.Fatal(err)
	}
	world := s.World()
	sum := []int64{int64(world.Rank())}
	if err := outrigger.AllreduceInPlace(ctx, world, sum, outrigger.Sum); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("rank %d of %d: the ranks add up to %d\n", world.Rank(), world.Size(), sum[0])
	if err := s.Close(); err != nil { // a rank that ends without Close fails the job
		log.Fatal(err)
	}
}

// A receive from any rank; the status says who it was, and how much. With 2
// ranks it prints:
//
//	[0] from rank 1, tag 7: [1 2 3]
func ExampleRecv() {
	job(func(ctx context.Context, world *outrigger.Comm) error {
		if world.Rank() > 0 {
			return outrigger.Send(ctx, world, []int32{1, 2, 3}, 0, 7)
		}
		buf := make([]int32, 100)
		for range world.Size() - 1 {
			st, err := outrigger.Recv(ctx, world, buf, outrigger.AnySource, outrigger.AnyTag)
			if err != nil {
				return err
			}
			fmt.Printf("from rank %d, tag %d: %v\n", st.Source, st.Tag, buf[:outrigger.Count[int32](st)])
		}
		return nil
	})
}

// Ranks pass a number on in a circle. The receive is started before the send, so that
// no rank waits for another one; memory from Alloc is transferred while the program computes. With 2
// ranks it prints:
//
//	[0] from the left: 10
//	[1] from the left: 0
func ExampleIrecv() {
	job(func(ctx context.Context, world *outrigger.Comm) error {
		in, err := outrigger.Alloc[float64](world.Session(), 1)
		if err != nil {
			return err
		}
		n := world.Size()
		right, left := (world.Rank()+1)%n, (world.Rank()+n-1)%n
		receive, err := outrigger.Irecv(world, in, left, 0)
		if err != nil {
			return err
		}
		send, err := outrigger.Isend(world, []float64{float64(10 * world.Rank())}, right, 0)
		if err != nil {
			return err
		}
		// Computations that need neither of the two messages can be done here.
		if err := outrigger.WaitAll(ctx, []outrigger.Request{receive, send}); err != nil {
			return err
		}
		fmt.Println("from the left:", in[0])
		return nil
	})
}

// The largest of all ranks' numbers, element by element. With 2 ranks it prints:
//
//	[0] [1 0]
//	[1] [1 0]
func ExampleAllreduce() {
	job(func(ctx context.Context, world *outrigger.Comm) error {
		mine := []float64{float64(world.Rank()), float64(-world.Rank())}
		largest := make([]float64, 2)
		if err := outrigger.Allreduce(ctx, world, mine, largest, outrigger.Max); err != nil {
			return err
		}
		fmt.Println(largest)
		return nil
	})
}

// Each rank computes its block of a vector where it belongs, and gets the other blocks
// there. With 2 ranks it prints:
//
//	[0] [0 1 100 101]
//	[1] [0 1 100 101]
func ExampleAllgatherInPlace() {
	job(func(ctx context.Context, world *outrigger.Comm) error {
		const block = 2
		vector := make([]int64, block*world.Size())
		for i := range block {
			vector[block*world.Rank()+i] = int64(100*world.Rank() + i)
		}
		if err := outrigger.AllgatherInPlace(ctx, world, vector); err != nil {
			return err
		}
		fmt.Println(vector)
		return nil
	})
}

// Each rank writes to the next one's part of a window, which a fence completes. With 2
// ranks it prints:
//
//	[0] my part: [0 1]
//	[1] my part: [0 0]
func ExampleWindow_Fence() {
	job(func(ctx context.Context, world *outrigger.Comm) error {
		part, err := outrigger.Alloc[int64](world.Session(), 2)
		if err != nil {
			return err
		}
		w, err := outrigger.NewWindow(ctx, world, part)
		if err != nil {
			return err
		}
		next := (world.Rank() + 1) % world.Size()
		if err := w.Put(ctx, []int64{int64(world.Rank())}, next, 1); err != nil {
			return err
		}
		if err := w.Fence(ctx); err != nil { // all puts of all ranks are complete
			return err
		}
		fmt.Println("my part:", w.Local())
		return w.Free(ctx)
	})
}

// Rank 0 reads what rank 1 has computed. Only the two of them synchronise, however many
// ranks the window has. With 2 ranks it prints:
//
//	[0] got [2 3]
func ExampleWindow_Start() {
	job(func(ctx context.Context, world *outrigger.Comm) error {
		part, err := outrigger.Alloc[int64](world.Session(), 2)
		if err != nil {
			return err
		}
		w, err := outrigger.NewWindow(ctx, world, part)
		if err != nil {
			return err
		}
		switch world.Rank() {
		case 0:
			if err := w.Start(ctx, []int{1}); err != nil { // waits for rank 1's Post
				return err
			}
			got := make([]int64, 2)
			if err := w.Get(ctx, got, 1, 0); err != nil {
				return err
			}
			if err := w.Complete(ctx); err != nil {
				return err
			}
			fmt.Println("got", got)
		case 1:
			copy(part, []int64{2, 3})
			if err := w.Post(ctx, []int{0}); err != nil {
				return err
			}
			if err := w.Wait(ctx); err != nil { // waits for rank 0's Complete
				return err
			}
		}
		return w.Free(ctx)
	})
}

// The last column of a matrix of 3 rows and 4 columns becomes the first one elsewhere.
// With 2 ranks it prints:
//
//	[1] [3 0 0 0 7 0 0 0 11 0 0 0]
func ExampleSendStrided() {
	job(func(ctx context.Context, world *outrigger.Comm) error {
		const rows, columns = 3, 4
		matrix := make([]int64, rows*columns)
		column := outrigger.Layout{Count: rows, Block: 1, Stride: columns}
		switch world.Rank() {
		case 0:
			for i := range matrix {
				matrix[i] = int64(i)
			}
			return outrigger.SendStrided(ctx, world, matrix[columns-1:], column, 1, 0)
		case 1:
			if _, err := outrigger.RecvStrided(ctx, world, matrix, column, 0, 0); err != nil {
				return err
			}
			fmt.Println(matrix)
		}
		return nil
	})
}

// Elements of a mesh that another rank needs, by their numbers, and where they are
// there. With 2 ranks it prints:
//
//	[1] [0 0 50 20 21 22]
func ExampleSendIndexed() {
	job(func(ctx context.Context, world *outrigger.Comm) error {
		switch world.Rank() {
		case 0:
			values := []int64{0, 10, 20, 21, 22, 50}
			border := outrigger.Indexed{Counts: []int{1, 3}, Displs: []int{5, 2}}
			return outrigger.SendIndexed(ctx, world, values, border, 1, 0)
		case 1:
			values := make([]int64, 6)
			ghosts := outrigger.Indexed{Displs: []int{2, 3, 4, 5}} // one element each
			if _, err := outrigger.RecvIndexed(ctx, world, values, ghosts, 0, 0); err != nil {
				return err
			}
			fmt.Println(values)
		}
		return nil
	})
}

// particle is a type that can be sent: its fields are numbers, and arrays of them.
type particle struct {
	Position, Velocity [3]float64
	ID                 uint64
}

// Slices of structs, as messages and in collectives. With 2 ranks it prints:
//
//	[0] 2 particles of 56 bytes, the last is 1 at [0 0 1]
func ExampleStruct() {
	job(func(ctx context.Context, world *outrigger.Comm) error {
		particles, err := outrigger.StructOf[particle]() // call StructOf only once, because it checks the type
		if err != nil {
			return err
		}
		mine := []particle{{ID: uint64(world.Rank()), Position: [3]float64{0, 0, float64(world.Rank())}}}
		all := make([]particle, world.Size())
		if err := particles.Gather(ctx, world, mine, all, 0); err != nil {
			return err
		}
		if world.Rank() == 0 {
			last := all[len(all)-1]
			fmt.Printf("%d particles of %d bytes, the last is %d at %v\n", len(all), particles.Size(), last.ID, last.Position)
		}
		return nil
	})
}

// Ranks in a row, each of which gets its left neighbour's number. The first one has no
// neighbour there: it receives from NullRank, and keeps what it has. With 2 ranks it
// prints:
//
//	[0] at [0]: my left has -1
//	[1] at [1]: my left has 0
func ExampleCart() {
	job(func(ctx context.Context, world *outrigger.Comm) error {
		dims, err := outrigger.Dims(world.Size(), []int{0})
		if err != nil {
			return err
		}
		row, err := world.Cart(ctx, dims, nil) // nil: the grid is periodic in no dimension
		if err != nil {
			return err
		}
		left, right := row.Shift(0, 1)
		got := []int64{-1}
		if _, err := outrigger.Sendrecv(ctx, row.Comm, []int64{int64(row.Rank())}, right, 0, got, left, 0); err != nil {
			return err
		}
		fmt.Printf("at %v: my left has %d\n", row.Coords(row.Rank()), got[0])
		return nil
	})
}
