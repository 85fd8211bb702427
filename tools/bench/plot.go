package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	plotWidth  = 24 * vg.Centimeter
	plotHeight = 16 * vg.Centimeter
)

// checkPlotName refuses file names whose format cannot be drawn.
func checkPlotName(path string) error {
	switch ext := strings.ToLower(filepath.Ext(path)); {
	case path == "", ext == ".svg", ext == ".png":
		return nil
	default:
		return fmt.Errorf("--plot %s: want a file name that ends in .svg or .png", path)
	}
}

// plotTimeline draws throughput above latencies over the time of the run.
func plotTimeline(path, topic string, timeline []Window) error {
	rate, latency := plot.New(), plot.New()
	rate.Title.Text, rate.Y.Label.Text, rate.Y.Min = "cairn bench produce, topic "+topic, "records/s", 0
	latency.Y.Label.Text, latency.X.Label.Text, latency.Y.Min = "latency, ms", "seconds", 0
	latency.Legend.Top = true
	line := func(of func(Window) float64) plotter.XYs {
		points := make(plotter.XYs, len(timeline))
		for i, w := range timeline {
			points[i] = plotter.XY{X: w.Second, Y: of(w)}
		}
		return points
	}
	if err := plotutil.AddLines(rate, line(func(w Window) float64 { return w.Rate })); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	if err := plotutil.AddLines(latency,
		"50 %", line(func(w Window) float64 { return w.P50 }), "99 %", line(func(w Window) float64 { return w.P99 }),
		"99.9 %", line(func(w Window) float64 { return w.P999 }), "max", line(func(w Window) float64 { return w.Max })); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return savePlots(path, rate, latency)
}

// savePlots draws plots one above the other into a file whose ending names the format.
func savePlots(path string, plots ...*plot.Plot) error {
	canvas, err := draw.NewFormattedCanvas(plotWidth, plotHeight, strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), "."))
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadTop: vg.Millimeter * 3, PadBottom: vg.Millimeter * 3, PadLeft: vg.Millimeter * 3, PadRight: vg.Millimeter * 3, PadY: vg.Millimeter * 6}
	rows := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		rows[i] = []*plot.Plot{p}
	}
	for i, row := range plot.Align(rows, tiles, draw.New(canvas)) {
		plots[i].Draw(row[0])
	}
	return writeCanvas(path, canvas)
}

func writeCanvas(path string, canvas vg.CanvasWriterTo) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(f)
	return errors.Join(err, f.Close())
}
