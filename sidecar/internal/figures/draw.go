package figures

import (
	"fmt"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Draw writes the plot as a PNG file in dir and returns the file's name.
func (p *Plot) Draw(dir string) (string, error) {
	d := plot.New()
	d.Title.Text, d.X.Label.Text, d.Y.Label.Text = p.Title, p.X, p.Y
	d.Add(plotter.NewGrid())
	d.Legend.Top, d.Legend.Left = true, true
	if err := p.lines(d); err != nil {
		return "", err
	}
	if p.Sizes {
		p.sizeAxis(d)
	} else {
		d.X.Tick.Marker = plot.ConstantTicks(nil)
	}
	name := p.Name + ".png"
	return name, d.Save(16*vg.Centimeter, 10*vg.Centimeter, filepath.Join(dir, name))
}

func (p *Plot) lines(d *plot.Plot) error {
	for i, c := range p.Curves {
		points := make(plotter.XYs, len(c.Points))
		for k, at := range c.Points {
			points[k] = plotter.XY{X: at.X, Y: at.Y}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("curve %q: %w", c.Name, err)
		}
		line.Color, dots.Color, dots.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		d.Add(line, dots)
		d.Legend.Add(c.Name, line, dots)
	}
	return nil
}

// sizeAxis labels the lower axis with message sizes.
func (p *Plot) sizeAxis(d *plot.Plot) {
	var ticks []plot.Tick
	for n := float64(64); n <= 4<<20; n *= 2 {
		if n >= d.X.Min && n <= d.X.Max {
			ticks = append(ticks, plot.Tick{Value: n, Label: sizeName(int(n))})
		}
	}
	d.X.Scale, d.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(ticks)
}

func sizeName(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%dM", n>>20)
	}
	if n >= 1<<10 {
		return fmt.Sprintf("%dK", n>>10)
	}
	return fmt.Sprint(n)
}

// Write writes the page and its pictures to dir.
func (r *Report) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("folder of the figures: %w", err)
	}
	for i := range r.Plots {
		if _, err := r.Plots[i].Draw(dir); err != nil {
			return fmt.Errorf("plot %s: %w", r.Plots[i].Name, err)
		}
	}
	f, err := os.Create(filepath.Join(dir, "index.html"))
	if err != nil {
		return fmt.Errorf("page of the figures: %w", err)
	}
	err = r.page(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
