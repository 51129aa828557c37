package propagation

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Plots are inline SVG whose colours are the page's CSS classes (s0, s1, s2: the
// control plane, the floor, bare TCP; or, of lines with names, one each), so that they are readable on light and on dark.

// group is one row of a bar chart: a label and one value a series.
type group struct {
	label  string
	values []float64
}

const (
	plotWidth   = 720.0
	labelWidth  = 130.0
	valueWidth  = 70.0
	barHeight   = 12.0
	groupGap    = 10.0
	linesHeight = 220.0
	linesLeft   = 60.0
	linesBottom = 34.0
	linesTop    = 24.0 // the unit is above the highest number
	colours     = 7    // of lines
)

// bars draws horizontal bars; unit goes after each value.
func bars(title, unit string, groups []group) template.HTML {
	most, height := 0.0, 0.0
	for _, g := range groups {
		for _, v := range g.values {
			most = max(most, v)
		}
		height += float64(len(g.values))*barHeight + groupGap
	}
	var b svg
	b.open(title, plotWidth, height)
	y := 0.0
	for _, g := range groups {
		b.text(labelWidth-8, y+float64(len(g.values))*barHeight/2+4, "end", g.label)
		for i, v := range g.values {
			w := ratio(v, most) * (plotWidth - labelWidth - valueWidth)
			b.add(`<rect class="s%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2"/>`, i, labelWidth, y+1, max(w, 1), barHeight-2)
			b.text(labelWidth+w+6, y+barHeight-2, "start", short(v)+" "+unit)
			y += barHeight
		}
		y += groupGap
	}
	return b.close()
}

// line is a named polyline; its series chooses the colour.
type line struct {
	series int
	dashed bool
	name   string // in the plot's own key; empty: the page's key has it
	points [][2]float64
}

// axes says how a plot of lines is labelled.
type axes struct {
	title, x, y string
	logX        bool
}

// lines draws polylines over axes that begin at 0 (or, where logarithmic, at the least x).
func lines(a axes, list []line) template.HTML {
	lo, hi, top := math.Inf(1), 0.0, 0.0
	for _, l := range list {
		for _, p := range l.points {
			lo, hi, top = min(lo, p[0]), max(hi, p[0]), max(top, p[1])
		}
	}
	if !a.logX {
		lo = 0
	}
	across := func(x float64) float64 {
		share := ratio(x-lo, hi-lo)
		if a.logX {
			share = ratio(math.Log(x/lo), math.Log(hi/lo))
		}
		return linesLeft + share*(plotWidth-linesLeft-20)
	}
	up := func(y float64) float64 {
		return linesHeight - linesBottom - ratio(y, top)*(linesHeight-linesBottom-linesTop)
	}
	var b svg
	b.open(a.title, plotWidth, linesHeight, list...)
	b.grid(a, lo, hi, top, across, up)
	for _, l := range list {
		var at []string
		for _, p := range l.points {
			at = append(at, fmt.Sprintf("%.1f,%.1f", across(p[0]), up(p[1])))
		}
		dash := ""
		if l.dashed {
			dash = ` stroke-dasharray="5 4"`
		}
		b.add(`<polyline class="l%d" points="%s"%s/>`, l.series%colours, strings.Join(at, " "), dash)
	}
	return b.close()
}

// svg is a picture that is being drawn.
type svg struct{ strings.Builder }

func (b *svg) add(format string, args ...any) { fmt.Fprintf(b, format, args...) }

// open begins a picture, with a key of the lines that have names.
func (b *svg) open(title string, w, h float64, list ...line) {
	title = template.HTMLEscapeString(title)
	b.add(`<figure><figcaption>%s</figcaption><p class="key">`, title)
	for _, l := range list {
		if l.name != "" {
			b.add(`<span style="background:var(--s%d)"></span>%s`, l.series%colours, template.HTMLEscapeString(l.name))
		}
	}
	b.add(`</p><svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, w, h, title)
}

func (b *svg) close() template.HTML {
	b.WriteString("</svg></figure>")
	return template.HTML(b.String()) //nolint:gosec // all text in it was escaped
}

func (b *svg) text(x, y float64, anchor, text string) {
	b.add(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, template.HTMLEscapeString(text))
}

const gridSteps = 4

// grid draws lines and labels of both axes.
func (b *svg) grid(a axes, lo, hi, top float64, across, up func(float64) float64) {
	for i := range gridSteps + 1 {
		share := float64(i) / gridSteps
		x := lo + share*(hi-lo)
		if a.logX {
			x = lo * math.Pow(ratio(hi, lo), share)
		}
		y := share * top
		b.add(`<line class="g" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, linesLeft, plotWidth-20, up(y), up(y))
		b.text(linesLeft-6, up(y)+4, "end", short(y))
		b.text(across(x), linesHeight-linesBottom+16, "middle", short(x))
	}
	b.text(plotWidth-20, linesHeight-4, "end", a.x)
	b.text(2, 10, "start", a.y)
}

// short is a number in about three digits.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
