package main

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	plotWidth  = 26 * vg.Centimeter
	plotHeight = 22 * vg.Centimeter
	barWidth   = 20 // points
)

// plots draws throughput as bars and latency as percentiles, each on one node and on three. The end of a file's name says in which format.
func (r *report) plots(throughput, latency string) error {
	var bars, lines []*plot.Plot
	for _, nodes := range r.nodes() {
		b, err := r.throughputPlot(nodes)
		if err != nil {
			return err
		}
		l, err := r.latencyPlot(nodes)
		if err != nil {
			return err
		}
		bars, lines = append(bars, b), append(lines, l)
	}
	if len(bars) == 0 {
		return nil
	}
	return errors.Join(savePlots(throughput, bars), savePlots(latency, lines))
}

// savePlots draws plots one above the other.
func savePlots(file string, plots []*plot.Plot) error {
	canvas, err := draw.NewFormattedCanvas(plotWidth, plotHeight*vg.Length(len(plots))/2, strings.TrimPrefix(filepath.Ext(file), "."))
	if err != nil {
		return err
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadTop: vg.Millimeter * 3, PadBottom: vg.Millimeter * 3, PadLeft: vg.Millimeter * 3, PadRight: vg.Millimeter * 3, PadY: vg.Millimeter * 8}
	rows := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		rows[i] = []*plot.Plot{p}
	}
	for i, row := range plot.Align(rows, tiles, draw.New(canvas)) {
		plots[i].Draw(row[0])
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(f)
	return errors.Join(err, f.Close())
}

// placeLegend puts it on the right, with its text behind the marks: how wide that is, only who shows the picture knows.
func placeLegend(p *plot.Plot, top bool) {
	l := &p.Legend
	l.Top, l.Left, l.XOffs, l.Padding, l.TextStyle.Font.Size = top, true, 17*vg.Centimeter, vg.Millimeter, 9
}

// shade is the colour of a system: of its name, and paler when it is not safe.
func shade(s system) color.Color {
	c := map[string]color.NRGBA{"cairn": {R: 0x1b, G: 0x7a, B: 0x4b, A: 255}, "Kafka": {R: 0x2f, G: 0x5d, B: 0xa8, A: 255}, "NATS": {R: 0xd0, G: 0x7a, B: 0x12, A: 255}}[s.name]
	if !s.safe {
		c.R, c.G, c.B = pale(c.R), pale(c.G), pale(c.B)
	}
	return c
}

func pale(v uint8) uint8 { return uint8(255 - (255-int(v))/2) }

func (r *report) throughputPlot(nodes int) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.Y.Min = "Throughput, "+nodesText(nodes), "MB/s", 0
	all := systems(nodes)
	var names []string
	for i, s := range all {
		var bars plotter.Values
		var labels plotter.XYLabels
		for x, c := range comparisons() {
			if !c.larger {
				continue
			}
			f := spreadOver(r.best(c.key(s)))
			bars, labels.Labels = append(bars, f.median), append(labels.Labels, f.label())
			labels.XYs = append(labels.XYs, plotter.XY{X: float64(x), Y: f.median})
			if i == 0 {
				names = append(names, strings.TrimSuffix(c.title, ", MB/s"))
			}
		}
		offset := vg.Points(barWidth * (float64(i) - float64(len(all)-1)/2))
		chart, err := plotter.NewBarChart(bars, vg.Points(barWidth-2))
		if err != nil {
			return nil, err
		}
		chart.LineStyle.Width, chart.Color, chart.Offset = 0, shade(s), offset
		text, err := plotter.NewLabels(labels)
		if err != nil {
			return nil, err
		}
		for j := range text.TextStyle {
			text.TextStyle[j].XAlign, text.TextStyle[j].Font.Size = draw.XCenter, 7
		}
		text.Offset = vg.Point{X: offset, Y: 2}
		p.Add(chart, text)
		p.Legend.Add(s.String(), chart)
		for _, v := range bars {
			p.Y.Max = max(p.Y.Max, 1.1*v)
		}
	}
	p.NominalX(names...)
	p.X.Max = float64(len(names)) + 0.4 // room for the legend
	placeLegend(p, true)
	return p, nil
}

// label is what stands above a bar.
func (s spread) label() string {
	if s.n == 0 {
		return "none"
	}
	return digits(s.median)
}

func (r *report) latencyPlot(nodes int) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Latency from end to end at %d records/s, %s", latencyRate, nodesText(nodes))
	p.Y.Label.Text, p.Y.Scale, p.Y.Tick.Marker = "ms", plot.LogScale{}, plot.LogTicks{Prec: -1}
	least, most := 1.0, 10.0
	var names []string
	for _, q := range quantiles() {
		names = append(names, strings.TrimSuffix(quantileText(q), " ms"))
	}
	for _, s := range systems(nodes) {
		var points plotter.XYs
		for x, q := range quantiles() {
			if f := spreadOver(r.best(key{nodes, s.String(), latencyCell(), quantileText(q)})); f.median > 0 {
				points = append(points, plotter.XY{X: float64(x), Y: f.median})
				least, most = min(least, f.median), max(most, f.median)
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width, dots.Color, dots.Shape, dots.Radius = shade(s), vg.Points(2), shade(s), draw.CircleGlyph{}, vg.Points(3)
		if !s.safe {
			line.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
		}
		p.Add(line, dots)
		p.Legend.Add(s.String(), line, dots)
	}
	p.Y.Min, p.Y.Max = least/1.3, most*1.3
	p.NominalX(names...)
	p.X.Max = float64(len(names)) + 0.2 // room for the legend
	placeLegend(p, false)
	p.Add(plotter.NewGrid())
	return p, nil
}
