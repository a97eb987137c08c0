package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// chart is one plot: value over message size, with a curve for each name.
type chart struct {
	test, unit string
	value      func(Figure) float64
	curve      func(Figure) string
}

var charts = []chart{
	{Latency, "half a round trip, us", func(f Figure) float64 { return f.US }, func(f Figure) string { return f.Peer }},
	{Bandwidth, "MB/s", func(f Figure) float64 { return f.MBs }, func(f Figure) string { return f.Peer }},
	{Collectives, "us a call", func(f Figure) float64 { return f.US }, func(f Figure) string { return f.Op }},
	{Reuse, "half a round trip, us", func(f Figure) float64 { return f.US }, variantCurve},
	{OneSided, "us", func(f Figure) float64 { return f.US }, variantCurve},
	{Bowtie, "us a round", func(f Figure) float64 { return f.US }, variantCurve},
	{Channels, "half a round trip, us", func(f Figure) float64 { return f.US }, variantCurve},
}

// variantCurve names the curve of an experiment and a variant.
func variantCurve(f Figure) string { return f.Op + ", " + f.Variant }

// Plot draws figures over message size, with logarithmic axes, as PNG files in dir. It
// returns the files, one for each of the tests in charts that has figures.
func Plot(dir string, all []Figure) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of the plots: %w", err)
	}
	var files []string
	for _, c := range charts {
		path := filepath.Join(dir, c.test+".png")
		drawn, err := c.draw(path, medians(ofTest(all, c.test)))
		if err != nil {
			return files, fmt.Errorf("plot of %s: %w", c.test, err)
		}
		if drawn {
			files = append(files, path)
		}
	}
	return files, nil
}

// medians merges the figures that differ only in the turn into one.
func medians(figures []Figure) (all []Figure) {
	for _, f := range figures {
		if slices.ContainsFunc(all, func(x Figure) bool {
			return x.Op == f.Op && x.Variant == f.Variant && x.Bytes == f.Bytes && x.Peer == f.Peer && x.Side == f.Side
		}) {
			continue
		}
		var us []float64
		for _, x := range figures {
			if x.Op == f.Op && x.Variant == f.Variant && x.Bytes == f.Bytes && x.Peer == f.Peer && x.Side == f.Side {
				us = append(us, x.US)
			}
		}
		if f.US > 0 {
			f.US = Median(us)
		}
		all = append(all, f)
	}
	return all
}

// curves groups the figures by curve. Figures without a place on logarithmic axes are
// omitted, such as a barrier, which has no size.
func (c *chart) curves(figures []Figure) (names []string, points map[string]plotter.XYs) {
	points = map[string]plotter.XYs{}
	for _, f := range figures {
		if f.Bytes <= 0 || c.value(f) <= 0 {
			continue
		}
		name := c.curve(f)
		if points[name] == nil {
			names = append(names, name)
		}
		points[name] = append(points[name], plotter.XY{X: float64(f.Bytes), Y: c.value(f)})
	}
	return names, points
}

func (c *chart) draw(path string, figures []Figure) (bool, error) {
	names, points := c.curves(figures)
	if len(names) == 0 {
		return false, nil
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Outrigger: "+c.test, "message", c.unit
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = true, true
	for i, name := range names {
		line, dots, err := plotter.NewLinePoints(points[name])
		if err != nil {
			return false, err
		}
		line.Color, dots.Color = plotutil.Color(i), plotutil.Color(i)
		p.Add(line, dots)
		p.Legend.Add(name, line, dots)
	}
	logarithmic(p)
	return true, p.Save(16*vg.Centimeter, 11*vg.Centimeter, path)
}

// logarithmic makes both axes logarithmic. They get a margin, because a range without
// extent has no logarithmic scale.
func logarithmic(p *plot.Plot) {
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Min, a.Max = a.Min*0.8, a.Max*1.25
		a.Scale, a.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	var ticks []plot.Tick
	for n, i := 8, 0; n <= BytesMax; n, i = n*2, i+1 {
		label := ""
		if i%3 == 0 {
			label = Size(n)
		}
		if v := float64(n); v >= p.X.Min && v <= p.X.Max {
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
}
