package main

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// plots draws throughput as bars and latency as percentiles, both of the systems on the most nodes that were measured.
func (r *report) plots() error {
	nodes := r.o.nodes[len(r.o.nodes)-1]
	if err := r.throughputPlot(nodes, docs("peers-throughput.svg")); err != nil {
		return err
	}
	return r.latencyPlot(nodes, docs("peers-latency.svg"))
}

// shade is the colour of a system: of its name, and paler when it is not safe.
func shade(i int) color.Color {
	c, alpha := color.NRGBAModel.Convert(plotutil.Color(i%3)).(color.NRGBA), uint8(255)
	if i >= 3 {
		alpha = 110
	}
	c.A = alpha
	return c
}

func (r *report) throughputPlot(nodes int, file string) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = fmt.Sprintf("Throughput, %d node(s)", nodes), "MB/s"
	p.Y.Min = 0
	var names []string
	const width = 12
	for i, s := range systems(nodes) {
		var bars plotter.Values
		for _, c := range comparisons() {
			if c.larger {
				bars = append(bars, r.figure(nodes, s.String(), c.of(s), c.metric).median)
				if i == 0 {
					names = append(names, c.title)
				}
			}
		}
		chart, err := plotter.NewBarChart(bars, vg.Points(width))
		if err != nil {
			return err
		}
		chart.LineStyle.Width, chart.Color, chart.Offset = 0, shade(i), vg.Points(width*(float64(i)-2.5))
		p.Add(chart)
		p.Legend.Add(s.String(), chart)
	}
	p.Legend.Top = true
	p.NominalX(names...)
	return p.Save(20*vg.Centimeter, 12*vg.Centimeter, file)
}

func (r *report) latencyPlot(nodes int, file string) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("From end to end at %d records/s, %d node(s)", latencyRate, nodes)
	p.Y.Label.Text, p.Y.Scale, p.Y.Tick.Marker = "ms", plot.LogScale{}, plot.LogTicks{Prec: -1}
	cell := fmt.Sprintf("end to end at %d/s", latencyRate)
	drawn := false
	for i, s := range systems(nodes) {
		var points plotter.XYs
		for x, q := range []string{"p50 ms", "p90 ms", "p99 ms", "p99.9 ms"} {
			if f := r.figure(nodes, s.String(), cell, q); f.n > 0 && f.median > 0 {
				points = append(points, plotter.XY{X: float64(x), Y: f.median})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, dots.Color, drawn = shade(i), shade(i), true
		p.Add(line, dots)
		p.Legend.Add(s.String(), line)
	}
	if !drawn {
		p.Y.Scale, p.Y.Tick.Marker = plot.LinearScale{}, plot.DefaultTicks{} // nothing to show
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.NominalX("p50", "p90", "p99", "p99.9")
	return p.Save(20*vg.Centimeter, 12*vg.Centimeter, file)
}
