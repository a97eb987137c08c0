package main

import (
	"fmt"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// plotFigures draws latency and bandwidth over message size.
func plotFigures(dir string, all []figure) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range []struct {
		test, label string
		value       func(figure) float64
	}{
		{"latency", "half a round trip, us", func(f figure) float64 { return f.US }},
		{"bandwidth", "MB/s", func(f figure) float64 { return f.MBs }},
	} {
		var points plotter.XYs
		for _, f := range all {
			if f.Test == c.test {
				points = append(points, plotter.XY{X: float64(f.Bytes), Y: c.value(f)})
			}
		}
		if len(points) == 0 {
			continue
		}
		if err := plotCurve(filepath.Join(dir, c.test+".png"), c.test, c.label, points); err != nil {
			return fmt.Errorf("plot of %s: %w", c.test, err)
		}
	}
	return nil
}

func plotCurve(path, title, label string, points plotter.XYs) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Outrigger "+title, "message, bytes", label
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	p.Add(plotter.NewGrid(), line, dots)
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, path)
}
