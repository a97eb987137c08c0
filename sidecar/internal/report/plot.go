package report

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// grid shows the matrix to the plotter: columns are destinations, rows are
// sources from the top down, values the logarithm of bytes.
type grid struct{ m *Matrix }

func (g grid) Dims() (c, r int) { return g.m.Ranks, g.m.Ranks }
func (g grid) X(c int) float64  { return float64(c) }
func (g grid) Y(r int) float64  { return float64(r) }
func (g grid) Z(c, r int) float64 {
	return math.Log10(1 + float64(g.m.Bytes[g.m.Ranks-1-r][c]))
}

// Plot draws bytes from rank to rank as a heat map in dir and returns the file.
func (m *Matrix) Plot(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	p := plot.New()
	p.Title.Text = "Bytes sent, log10"
	p.X.Label.Text, p.Y.Label.Text = "to rank", "from rank"
	h := plotter.NewHeatMap(grid{m}, palette.Heat(64, 1))
	if h.Max == h.Min {
		h.Max = h.Min + 1 // one colour; the plotter divides by the range
	}
	p.Add(h)
	step := max(1, m.Ranks/16)
	var x, y []plot.Tick
	for r := 0; r < m.Ranks; r += step {
		x = append(x, plot.Tick{Value: float64(r), Label: fmt.Sprint(r)})
		y = append(y, plot.Tick{Value: float64(m.Ranks - 1 - r), Label: fmt.Sprint(r)})
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(x), plot.ConstantTicks(y)
	path := filepath.Join(dir, "matrix.png")
	return path, p.Save(14*vg.Centimeter, 14*vg.Centimeter, path)
}
