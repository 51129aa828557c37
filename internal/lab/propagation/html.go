package propagation

import (
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
	"ratio": func(a, b float64) string { return plot.Short(ratio(a, b)) + "×" },
	"mega":  func(n int64) string { return plot.Short(float64(n) / (1 << 20)) },
}).Parse(pageText))

// WriteHTML writes a page that needs no other file.
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

// held counts the bars: those that hold, and all. Trials count their own.
func (r *Report) held() (n [2]int) {
	for _, x := range r.Results {
		for _, b := range x.Bars {
			if n[1]++; b.Holds {
				n[0]++
			}
		}
	}
	return n
}

// besides are scenarios whose floor is the floor, not another measurement of the subject.
func (r *Result) besides() bool { return r.Floor != nil && r.Bare != nil }

func (r *Report) plots() (out []template.HTML) {
	for _, mesh := range r.meshNames() {
		var last, cpu []plot.Group
		var curves []template.HTML
		for i := range r.Results {
			x := &r.Results[i]
			if x.MeshName() != mesh || !x.besides() {
				continue
			}
			last = append(last, plot.Values(x.Scenario, x.Subject.Last.P50, x.Floor.Last.P50, x.Bare.Last.P50))
			cpu = append(cpu, plot.Values(x.Scenario, x.Subject.CPU.P50, x.Floor.CPU.P50, x.Bare.CPU.P50))
			curves = append(curves, plot.Lines(plot.Axes{Title: mesh + ", " + x.Scenario + ": share of proxies that have it", X: "ms", Y: "share"},
				[]plot.Line{{Series: 0, Points: flip(x.Subject.Curve)}, {Series: 1, Points: flip(x.Floor.Curve)}, {Series: 2, Points: flip(x.Bare.Curve)}}))
		}
		if len(last) > 0 {
			out = append(out, plot.Bars(mesh+": time to the last proxy's ACK, median", "ms", last), plot.Bars(mesh+": the server's CPU time a change, median", "ms", cpu))
			out = append(out, curves...)
		}
	}
	return append(out, r.growthPlots()...)
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

// flip makes (share, value) to (value, share).
func flip(points [][2]float64) [][2]float64 {
	out := make([][2]float64, len(points))
	for i, p := range points {
		out[i] = [2]float64{p[1], p[0]}
	}
	return out
}
