package plot

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Line is a polyline.
type Line struct {
	Series int // chooses the colour
	Dashed bool
	Name   string // in the plot's legend; "": the page's legend has it
	Points [][2]float64
	Spread [][2]float64 // ends of the whisker of each point; nil: none
}

// Axes has the labels of a plot of lines.
type Axes struct {
	Title, X, Y string
	LogX        bool
}

const (
	linesHeight = 220.0
	linesLeft   = 60.0
	linesBottom = 34.0
	linesTop    = 24.0 // the unit is above the highest number
	linesRight  = 20.0
)

// area maps values to positions in a plot of lines.
type area struct {
	lo, hi, top float64
	logX        bool
}

// areaOf returns an area whose axes begin at 0, or, if x is logarithmic, at the lowest x.
func areaOf(a Axes, list []Line) area {
	r := area{lo: math.Inf(1), logX: a.LogX}
	for _, l := range list {
		for _, p := range l.Points {
			r.lo, r.hi, r.top = min(r.lo, p[0]), max(r.hi, p[0]), max(r.top, p[1])
		}
		for _, s := range l.Spread {
			r.top = max(r.top, s[1])
		}
	}
	if !a.LogX {
		r.lo = 0
	}
	return r
}

func (r area) across(x float64) float64 {
	share := ratio(x-r.lo, r.hi-r.lo)
	if r.logX {
		share = ratio(math.Log(x/r.lo), math.Log(r.hi/r.lo))
	}
	return linesLeft + share*(width-linesLeft-linesRight)
}

func (r area) up(y float64) float64 {
	return linesHeight - linesBottom - ratio(y, r.top)*(linesHeight-linesBottom-linesTop)
}

// Lines draws polylines.
func Lines(a Axes, list []Line) template.HTML {
	r := areaOf(a, list)
	var b svg
	b.open(a.Title, width, linesHeight, list...)
	b.grid(a, r)
	for _, l := range list {
		b.line(l, r)
	}
	return b.close()
}

func (b *svg) line(l Line, r area) {
	var at []string
	for i, p := range l.Points {
		x := r.across(p[0])
		at = append(at, fmt.Sprintf("%.1f,%.1f", x, r.up(p[1])))
		if i < len(l.Spread) {
			b.add(`<path class="l%d" d="M%.1f %.1fV%.1f"/>`, l.Series%colours, x, r.up(l.Spread[i][0]), r.up(l.Spread[i][1]))
		}
		if l.Spread != nil {
			b.add(`<circle class="s%d" cx="%.1f" cy="%.1f" r="3"/>`, l.Series%colours, x, r.up(p[1]))
		}
	}
	dash := ""
	if l.Dashed {
		dash = ` stroke-dasharray="5 4"`
	}
	b.add(`<polyline class="l%d" points="%s"%s/>`, l.Series%colours, strings.Join(at, " "), dash)
}

const gridSteps = 4

// grid draws the lines and labels of both axes.
func (b *svg) grid(a Axes, r area) {
	for i := range gridSteps + 1 {
		share := float64(i) / gridSteps
		x := r.lo + share*(r.hi-r.lo)
		if a.LogX {
			x = r.lo * math.Pow(ratio(r.hi, r.lo), share)
		}
		y := share * r.top
		b.add(`<line class="g" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, linesLeft, width-linesRight, r.up(y), r.up(y))
		b.text(linesLeft-6, r.up(y)+4, "end", Short(y))
		b.text(r.across(x), linesHeight-linesBottom+16, "middle", Short(x))
	}
	b.text(width-linesRight, linesHeight-4, "end", a.X)
	b.text(2, 10, "start", a.Y)
}
