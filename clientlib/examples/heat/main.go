// Command heat solves the heat equation on a square plate whose upper edge is hot,
// by Jacobi's iteration on a grid of ranks, and writes a picture of the result.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"

	mpi "github.com/outrigger-hpc/outrigger/clientlib"
)

func main() {
	n := flag.Int("n", 240, "points of the plate in each direction; a multiple of the grid's sides")
	steps := flag.Int("steps", 500, "iterations")
	picture := flag.String("o", "", "write a PNG here")
	flag.Parse()
	if err := run(context.Background(), *n, *steps, *picture); err != nil {
		fmt.Fprintln(os.Stderr, "heat:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, n, steps int, picture string) error {
	s, err := mpi.Open(ctx, mpi.Config{})
	if err != nil {
		return err
	}
	dims, err := mpi.Dims(s.World().Size(), []int{0, 0})
	if err != nil {
		return err
	}
	grid, err := s.World().Cart(ctx, dims, nil)
	if err != nil {
		return err
	}
	if n%dims[0] != 0 || n%dims[1] != 0 {
		return fmt.Errorf("%d points on a grid of %v ranks: want a multiple of its sides", n, dims)
	}
	rows, cols := n/dims[0], n/dims[1]
	wide := cols + 2 // length of a row with its halo
	now, next := make([]float64, (rows+2)*wide), make([]float64, (rows+2)*wide)
	up, down := grid.Shift(0, 1)
	left, right := grid.Shift(1, 1)
	if up == mpi.NullRank { // the hot edge
		for j := range wide {
			now[j], next[j] = 1, 1
		}
	}
	row, col := mpi.Layout{Count: 1, Block: cols, Stride: wide}, mpi.Layout{Count: rows, Block: 1, Stride: wide}
	change := []float64{0}
	for range steps {
		for _, x := range []struct {
			l             mpi.Layout
			from, to      int // indexes of the first point that is sent, and of the first that is received
			towards, back int // rank to which the points are sent, and rank from which points are received
		}{
			{row, wide + 1, (rows+1)*wide + 1, up, down},
			{row, rows*wide + 1, 1, down, up},
			{col, wide + 1, wide + cols + 1, left, right},
			{col, wide + cols, wide, right, left},
		} {
			if _, err := mpi.SendrecvStrided(ctx, grid.Comm, now[x.from:], x.l, x.towards, 0, now[x.to:], x.l, x.back, 0); err != nil {
				return err
			}
		}
		change[0] = 0
		for i := 1; i <= rows; i++ {
			for j := i*wide + 1; j <= i*wide+cols; j++ {
				next[j] = (now[j-1] + now[j+1] + now[j-wide] + now[j+wide]) / 4
				change[0] = max(change[0], math.Abs(next[j]-now[j]))
			}
		}
		now, next = next, now
	}
	if err := mpi.AllreduceInPlace(ctx, grid.Comm, change, mpi.Max); err != nil {
		return err
	}
	mine, all := make([]float64, 0, rows*cols), make([]float64, n*n)
	for i := 1; i <= rows; i++ {
		mine = append(mine, now[i*wide+1:i*wide+1+cols]...)
	}
	if err := mpi.Gather(ctx, grid.Comm, mine, all, 0); err != nil {
		return err
	}
	if grid.Rank() == 0 {
		img, sum := image.NewGray(image.Rect(0, 0, n, n)), 0.0
		for i, v := range all {
			at, k := grid.Coords(i/(rows*cols)), i%(rows*cols)
			img.SetGray(at[1]*cols+k%cols, at[0]*rows+k/cols, color.Gray{Y: uint8(255 * v)})
			sum += v
		}
		fmt.Printf("%d steps on %v ranks: heat %.9f, last change %.3e\n", steps, dims, sum/float64(n*n), change[0])
		if picture != "" {
			var b bytes.Buffer
			if err := errors.Join(png.Encode(&b, img), os.WriteFile(picture, b.Bytes(), 0o644)); err != nil {
				return err
			}
		}
	}
	return s.Close()
}
