// Command hello greets from every rank and adds up the ranks:
//
//	outrigger run -n 4 --pods 2 -- bin/hello
package main

import (
	"context"
	"fmt"
	"os"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	world := s.World()
	sum := []int64{int64(world.Rank())}
	if err := outrigger.AllreduceInPlace(ctx, world, sum, outrigger.Sum); err != nil {
		return err
	}
	fmt.Printf("hello from rank %d of %d in pod %d; the ranks add up to %d\n", world.Rank(), world.Size(), s.Pod(), sum[0])
	return s.Close()
}
