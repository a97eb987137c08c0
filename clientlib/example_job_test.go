package outrigger_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// examples are what this test binary runs as the rank of a job: `outrigger run -n 2 --
// clientlib.test example NAME`, as e2e does with each of them.
var examples = map[string]func(){
	"":                 Example,
	"Recv":             ExampleRecv,
	"Irecv":            ExampleIrecv,
	"Allreduce":        ExampleAllreduce,
	"AllgatherInPlace": ExampleAllgatherInPlace,
	"Window_Fence":     ExampleWindow_Fence,
	"Window_Start":     ExampleWindow_Start,
	"SendStrided":      ExampleSendStrided,
	"SendIndexed":      ExampleSendIndexed,
	"Struct":           ExampleStruct,
	"Cart":             ExampleCart,
}

func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "example" {
		os.Exit(m.Run())
	}
	run := examples[os.Args[2]]
	if run == nil {
		fmt.Fprintf(os.Stderr, "there is no example %q in example_job_test.go\n", os.Args[2])
		os.Exit(2)
	}
	run()
}

// job runs work between Open and Close.
func job(work func(ctx context.Context, world *outrigger.Comm) error) {
	ctx := context.Background()
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := work(ctx, s.World()); err != nil {
		log.Fatal(err)
	}
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}
}
