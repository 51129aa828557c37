package plot

import (
	"html/template"
	"unicode/utf8"
)

// Bar is one bar of a group. Low and High are the ends of its whisker; if they are equal, it has none.
type Bar struct {
	Series           int // chooses the colour
	Value, Low, High float64
}

// Group is one row of a bar chart: a label and its bars.
type Group struct {
	Label string
	Bars  []Bar
}

// Values returns a group whose bars have series 0, 1, ... and no whiskers.
func Values(label string, values ...float64) Group {
	g := Group{Label: label}
	for i, v := range values {
		g.Bars = append(g.Bars, Bar{Series: i, Value: v, Low: v, High: v})
	}
	return g
}

const (
	width         = 720.0
	leastLabel    = 130.0 // width of labels
	mostLabel     = 300.0
	labelPerRune  = 6.2
	valueWidth    = 100.0
	barHeight     = 12.0
	groupGap      = 10.0
	whiskerHeight = 3.0
	colours       = 7
)

// Bars draws horizontal bars. The unit follows each value. names are the legend of series 0, 1, ...
func Bars(title, unit string, groups []Group, names ...string) template.HTML {
	most, height, label := 0.0, 0.0, leastLabel
	for _, g := range groups {
		for _, v := range g.Bars {
			most = max(most, v.Value, v.High)
		}
		height += float64(len(g.Bars))*barHeight + groupGap
		label = min(max(label, 12+labelPerRune*float64(utf8.RuneCountInString(g.Label))), mostLabel)
	}
	var b svg
	b.open(title, width, height, named(names)...)
	y := 0.0
	for _, g := range groups {
		b.text(label-8, y+float64(len(g.Bars))*barHeight/2+4, "end", g.Label)
		for _, v := range g.Bars {
			b.bar(v, y, label, ratio(width-label-valueWidth, most), unit)
			y += barHeight
		}
		y += groupGap
	}
	return b.close()
}

// bar draws one bar whose top is at y; scale is in pixels per unit.
func (b *svg) bar(v Bar, y, left, scale float64, unit string) {
	end := left + max(v.Value*scale, 1)
	b.add(`<rect class="s%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2"/>`, v.Series%colours, left, y+1, end-left, barHeight-2)
	if v.Low < v.High {
		low, high, middle := left+max(v.Low, 0)*scale, left+v.High*scale, y+barHeight/2
		b.add(`<path class="w" d="M%.1f %.1fH%.1fM%.1f %.1fv%.1fM%.1f %.1fv%.1f"/>`,
			low, middle, high, low, middle-whiskerHeight, 2*whiskerHeight, high, middle-whiskerHeight, 2*whiskerHeight)
		end = max(end, high)
	}
	b.text(end+6, y+barHeight-2, "start", Short(v.Value)+" "+unit)
}

// named returns lines that only appear in the legend.
func named(names []string) (out []Line) {
	for i, n := range names {
		out = append(out, Line{Series: i, Name: n})
	}
	return out
}
