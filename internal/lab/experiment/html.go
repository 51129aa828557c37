package experiment

import (
	"bytes"
	_ "embed" // the page
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/moonsail/moonsail/internal/lab/plot"
)

//go:embed report.gohtml
var pageText string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"short":   plot.Short,
	"percent": func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) },
	"dict":    func(a string, x any, b string, y any) map[string]any { return map[string]any{a: x, b: y} },
}).Parse(pageText))

// Files of a report's directory.
const (
	JSONFile = "report.json"
	HTMLFile = "report.html"
)

// Save writes report.json and report.html into a directory, which it creates.
func (r *Report) Save(dir string) error { return SaveReport(dir, r, r.WriteHTML, nil) }

// SaveReport writes a report as report.json and report.html, and more files by name, into a directory, which it creates.
func SaveReport(dir string, report any, writeHTML func(io.Writer) error, more map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // every user may read a report
		return err
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := writeHTML(&html); err != nil {
		return err
	}
	files := map[string][]byte{JSONFile: append(text, '\n'), HTMLFile: html.Bytes()}
	maps.Copy(files, more)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}

// WriteHTML writes a page that needs no other file.
func (r *Report) WriteHTML(w io.Writer) error {
	return page.Execute(w, map[string]any{"Style": plot.Style, "Report": r, "Pictures": r.pictures()})
}

// Body returns the body of that page, for a page with several reports in the same style.
func (r *Report) Body() (template.HTML, error) {
	var b bytes.Buffer
	err := page.ExecuteTemplate(&b, "body", map[string]any{"Report": r, "Pictures": r.pictures()})
	return template.HTML(b.String()), err //nolint:gosec // the template has escaped it
}

// picture is a plot and its description.
type picture struct {
	About string
	SVG   template.HTML
}

func (r *Report) pictures() (out []picture) {
	for _, p := range r.Plots {
		svg := r.bars(p)
		if p.X != "" {
			svg = r.lines(p)
		}
		if svg != "" {
			out = append(out, picture{p.About, svg})
		}
	}
	for _, c := range r.Charts {
		out = append(out, picture{c.About, c.draw()})
	}
	return out
}

// of returns the results with the metric of a plot.
func (r *Report) of(p Plot) (out []Result) {
	for _, v := range r.Variants {
		_, has := v.Summary[p.Metric]
		if has && (len(p.Variants) == 0 || slices.Contains(p.Variants, v.Name)) {
			out = append(out, v)
		}
	}
	return out
}

// colour returns the colour of a series, which is the same in all plots of the report.
func (r *Report) colour(series string) int {
	var all []string
	for _, v := range r.Variants {
		if !slices.Contains(all, v.Series) {
			all = append(all, v.Series)
		}
	}
	return slices.Index(all, series)
}

func (r *Report) bars(p Plot) template.HTML {
	var groups []plot.Group
	for _, v := range r.of(p) {
		s := v.Summary[p.Metric]
		groups = append(groups, plot.Group{Label: v.Name, Bars: []plot.Bar{{Series: r.colour(v.Series), Value: s.Median, Low: s.Q1, High: s.Q3}}})
	}
	if len(groups) == 0 {
		return ""
	}
	return plot.Bars(p.Title, r.Metric(p.Metric).Unit, groups)
}

func (r *Report) lines(p Plot) template.HTML {
	var list []plot.Line
	at := map[string]int{}
	results := r.of(p)
	slices.SortStableFunc(results, func(a, b Result) int { return int(1e6 * (a.X - b.X)) })
	for _, v := range results {
		i, known := at[v.Series]
		if !known {
			i = len(list)
			at[v.Series] = i
			list = append(list, plot.Line{Series: r.colour(v.Series), Name: v.Series})
		}
		s := v.Summary[p.Metric]
		list[i].Points = append(list[i].Points, [2]float64{v.X, s.Median})
		list[i].Spread = append(list[i].Spread, [2]float64{s.Q1, s.Q3})
	}
	if len(list) == 0 {
		return ""
	}
	return plot.Lines(plot.Axes{Title: p.Title, X: p.X, Y: r.Metric(p.Metric).Unit, LogX: p.LogX}, list)
}

func (c *Chart) draw() template.HTML {
	if len(c.Lines) == 0 {
		var groups []plot.Group
		for _, b := range c.Bars {
			groups = append(groups, plot.Values(b.Label, b.Values...))
		}
		return plot.Bars(c.Title, c.Y, groups, c.Names...)
	}
	var list []plot.Line
	for i, l := range c.Lines {
		list = append(list, plot.Line{Series: i, Name: l.Name, Points: l.Points})
	}
	return plot.Lines(plot.Axes{Title: c.Title, X: c.X, Y: c.Y}, list)
}
