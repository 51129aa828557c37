package plot

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// svg is a plot that is being drawn.
type svg struct{ strings.Builder }

func (b *svg) add(format string, args ...any) { fmt.Fprintf(b, format, args...) }

// open begins a plot, with a legend of the lines that have names.
func (b *svg) open(title string, w, h float64, list ...Line) {
	title = template.HTMLEscapeString(title)
	b.add(`<figure><figcaption>%s</figcaption><p class="key">`, title)
	for _, l := range list {
		if l.Name != "" {
			b.add(`<span style="background:var(--s%d)"></span>%s`, l.Series%colours, template.HTMLEscapeString(l.Name))
		}
	}
	b.add(`</p><svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, w, h, title)
}

func (b *svg) close() template.HTML {
	b.WriteString("</svg></figure>")
	return template.HTML(b.String()) //nolint:gosec // all text in it is escaped
}

func (b *svg) text(x, y float64, anchor, text string) {
	b.add(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, template.HTMLEscapeString(text))
}

// Short formats a number with about three digits.
func Short(v float64) string {
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

// ratio returns a/b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
