package report

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// grid adapts the matrix to the plotter: columns are destinations, rows are sources from
// the top down, values the logarithm of bytes.
type grid struct{ m *Matrix }

func (g grid) Dims() (c, r int) { return g.m.Ranks, g.m.Ranks }
func (g grid) X(c int) float64  { return float64(c) }
func (g grid) Y(r int) float64  { return float64(r) }
func (g grid) Z(c, r int) float64 {
	return math.Log10(1 + float64(g.m.Bytes[g.m.Ranks-1-r][c]))
}

// shades are colours from white for nothing to dark blue for the maximum.
type shades []color.Color

func (s shades) Colors() []color.Color { return s }

func newShades(n int) shades {
	s := make(shades, n)
	for i := range s {
		f := float64(i) / float64(n-1)
		s[i] = color.RGBA{R: uint8(255 - 247*f), G: uint8(255 - 207*f), B: uint8(255 - 148*f), A: 255}
	}
	return s
}

// scale is the colour bar: one column of values from nothing to the maximum.
type scale struct{ max float64 }

const scaleSteps = 64

func (s scale) Dims() (c, r int)   { return 1, scaleSteps }
func (s scale) X(int) float64      { return 0 }
func (s scale) Y(r int) float64    { return s.max * float64(r) / (scaleSteps - 1) }
func (s scale) Z(_, r int) float64 { return s.Y(r) }

// valueRanks is the number of ranks up to which the values are written in the cells.
const valueRanks = 16

// Plot draws bytes from rank to rank as a heat map in dir and returns the file.
func (m *Matrix) Plot(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	colors := newShades(scaleSteps)
	h := plotter.NewHeatMap(grid{m}, colors)
	h.Min = 0
	if h.Max <= 0 {
		h.Max = 1 // no rank has sent anything; the plotter divides by the range
	}
	p := plot.New()
	p.Title.Text = "Bytes sent from rank to rank"
	p.X.Label.Text, p.Y.Label.Text = "to rank", "from rank"
	p.Add(h)
	if m.Ranks <= valueRanks {
		labels, err := m.labels(h.Max)
		if err != nil {
			return "", err
		}
		p.Add(labels)
	}
	m.ticks(p)
	path := filepath.Join(dir, "matrix.png")
	return path, save(path, p, bar(h.Max, colors))
}

// ticksMax bounds the labels of an axis: more would overlap.
const ticksMax = 16

// ticks labels the axes with ranks, at most ticksMax of them, at equal distances.
func (m *Matrix) ticks(p *plot.Plot) {
	step := (m.Ranks + ticksMax - 1) / ticksMax
	var x, y []plot.Tick
	for r := 0; r < m.Ranks; r += step {
		x = append(x, plot.Tick{Value: float64(r), Label: fmt.Sprint(r)})
		y = append(y, plot.Tick{Value: float64(m.Ranks - 1 - r), Label: fmt.Sprint(r)})
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(x), plot.ConstantTicks(y)
}

// labels returns the values of the cells, light on dark cells.
func (m *Matrix) labels(most float64) (*plotter.Labels, error) {
	var xy plotter.XYLabels
	var styles []text.Style
	for s := range m.Ranks {
		for d := range m.Ranks {
			if m.Bytes[s][d] == 0 {
				continue
			}
			xy.XYs = append(xy.XYs, plotter.XY{X: float64(d), Y: float64(m.Ranks - 1 - s)})
			xy.Labels = append(xy.Labels, Size(m.Bytes[s][d]))
			ink := color.Black
			if math.Log10(1+float64(m.Bytes[s][d])) > most/2 {
				ink = color.White
			}
			styles = append(styles, text.Style{
				Color: ink, Font: font.From(plot.DefaultFont, font.Length(min(9, 80/float64(m.Ranks)))), XAlign: draw.XCenter, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler,
			})
		}
	}
	l, err := plotter.NewLabels(xy)
	if err != nil {
		return nil, err
	}
	l.TextStyle = styles
	return l, nil
}

// bar returns the colour bar, with powers of ten as people write them.
func bar(most float64, colors shades) *plot.Plot {
	p := plot.New()
	h := plotter.NewHeatMap(scale{most}, colors)
	h.Min, h.Max = 0, most
	p.Add(h)
	p.HideX()
	var ticks []plot.Tick
	for e := 0; float64(e) <= most; e++ {
		ticks = append(ticks, plot.Tick{Value: float64(e), Label: Size(uint64(math.Pow10(e)))})
	}
	ticks[0].Label = "nothing"
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	return p
}

// Sizes of the picture.
const (
	pictureSide = 14 * vg.Centimeter
	barSide     = 3 * vg.Centimeter
)

// save draws the map and its bar in one picture.
func save(path string, matrix, bar *plot.Plot) error {
	c := vgimg.New(pictureSide+barSide, pictureSide)
	all := draw.New(c)
	matrix.Draw(draw.Crop(all, 0, -barSide, 0, 0))
	bar.Draw(draw.Crop(all, pictureSide, 0, vg.Centimeter, -vg.Centimeter))
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(f); err != nil {
		_ = f.Close() // the first error is returned
		return err
	}
	return f.Close()
}
