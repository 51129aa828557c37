package results

import (
	"cmp"
	_ "embed" // the page
	"html/template"
	"io"
	"slices"

	"github.com/moonsail/moonsail/internal/lab/plot"
)

//go:embed report.gohtml
var pageText string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"short": plot.Short,
	"ratio": func(a, b float64) string { return plot.Short(Ratio(a, b)) + "×" },
	"mega":  func(n int64) string { return plot.Short(float64(n) / (1 << 20)) },
}).Parse(pageText))

// WriteHTML writes a self-contained page.
func (r *Report) WriteHTML(w io.Writer) error {
	var trials []template.HTML
	for _, x := range r.Results {
		if x.Report != nil {
			body, err := x.Report.Body()
			if err != nil {
				return err
			}
			trials = append(trials, body)
		}
	}
	return page.Execute(w, map[string]any{"Style": plot.Style, "Report": r, "Plots": r.plots(), "Held": r.held(), "Trials": trials,
		"Single": len(r.Singles()) > 0 || len(trials) == 0})
}

// held counts the targets that are met, and all targets, without those of trials.
func (r *Report) held() (n [2]int) {
	for _, x := range r.Results {
		for _, b := range x.Targets {
			if n[1]++; b.Met {
				n[0]++
			}
		}
	}
	return n
}

// besides reports whether Baseline is the baseline server, not another measurement of the subject.
func (r *Result) besides() bool { return r.Baseline != nil && r.Bare != nil }

func (r *Report) plots() (out []template.HTML) {
	for _, mesh := range r.meshNames() {
		var last, cpu []plot.Group
		var curves []template.HTML
		for i := range r.Results {
			x := &r.Results[i]
			if x.MeshName() != mesh || x.Baseline == nil || len(x.Series) > 0 {
				continue
			}
			curves = append(curves, x.curves())
			if x.besides() {
				last = append(last, plot.Values(x.Scenario, x.Subject.Last.P50, x.Baseline.Last.P50, x.Bare.Last.P50))
				cpu = append(cpu, plot.Values(x.Scenario, x.Subject.CPU.P50, x.Baseline.CPU.P50, x.Bare.CPU.P50))
			}
		}
		if len(last) > 0 {
			out = append(out, plot.Bars(mesh+": time to the last proxy's ACK, median", "ms", last), plot.Bars(mesh+": the server's CPU time a change, median", "ms", cpu))
		}
		out = append(out, curves...)
	}
	return append(append(out, r.growthPlots()...), r.memoryPlots()...)
}

// curves draws the share of proxies that have a change, over time.
func (r *Result) curves() template.HTML {
	names := r.Drawing.Lines
	lines := []plot.Line{{Series: 0, Name: names[0], Points: flip(r.Subject.Curve)}, {Series: 1, Name: names[1], Points: flip(r.Baseline.Curve)}}
	if r.Bare != nil {
		lines = append(lines, plot.Line{Series: 2, Points: flip(r.Bare.Curve)})
	}
	title := r.MeshName() + ", " + r.Scenario + ": share of proxies that " + cmp.Or(r.Drawing.Reached, "have the change")
	return plot.Lines(plot.Axes{Title: title, X: "ms", Y: "share"}, lines)
}

// memoryPlots draws the targets in KiB of scenarios whose drawing has a title for them.
func (r *Report) memoryPlots() (out []template.HTML) {
	for i := range r.Results {
		x := &r.Results[i]
		if x.Drawing.Bars == "" {
			continue
		}
		var bars []plot.Group
		for _, t := range x.Targets {
			if t.Unit == "KiB" {
				bars = append(bars, plot.Values(t.What, t.Value))
			}
		}
		out = append(out, plot.Bars(x.Drawing.Bars, "KiB", bars))
	}
	return out
}

func (r *Report) meshNames() (names []string) {
	for i := range r.Results {
		if n := r.Results[i].MeshName(); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

func (r *Report) growthPlots() (out []template.HTML) {
	for _, x := range r.Results {
		if len(x.Series) < 2 {
			continue
		}
		var last, cpu [][2]float64
		for _, p := range x.Series {
			last = append(last, [2]float64{float64(p.Services), p.Side.Last.P50})
			cpu = append(cpu, [2]float64{float64(p.Services), p.Side.CPU.P50})
		}
		out = append(out, plot.Lines(plot.Axes{Title: "growth: one endpoint change; time to the last ACK (solid) and CPU time (dashed)", X: "services", Y: "ms", LogX: true},
			[]plot.Line{{Series: 0, Points: last}, {Series: 0, Dashed: true, Points: cpu}}))
	}
	return out
}

// flip swaps the coordinates of points.
func flip(points [][2]float64) [][2]float64 {
	out := make([][2]float64, len(points))
	for i, p := range points {
		out[i] = [2]float64{p[1], p[0]}
	}
	return out
}
