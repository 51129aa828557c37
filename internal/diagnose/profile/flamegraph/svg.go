package flamegraph

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"html"
	"io"
	"strings"
)

// Graph is a drawing of stacks.
type Graph struct {
	Title    string
	Subtitle string // may be empty
	Unit     string // unit of counts, in the plural: "samples"
	Stacks   []Stack
}

// Measures in pixels.
const (
	width     = 1400
	margin    = 12
	rowHeight = 17
	header    = 66
	footer    = 40
	character = 6.7 // width of a character at 11 px
	narrowest = 0.25
	fewest    = 8 // minimum of characters that are legible
	shades    = 5
)

// Frames have three kinds. Each kind has a colour in several shades, which separate neighbours.
var kinds = []struct{ class, about, light, dark string }{
	{"n", "by name", "28 88%", "24 62%"},
	{"u", "no name: module and offset", "220 12%", "220 10%"},
	{"k", "kernel", "205 70%", "208 48%"},
}

// WriteSVG draws stacks with the outermost frame at the bottom. A frame's width is its share of all
// samples. Its tooltip has name, count and share.
func (g *Graph) WriteSVG(w io.Writer) error {
	root := grow(g.Stacks)
	scale := float64(width-2*margin) / float64(max(root.total, 1))
	boxes, hidden := root.boxes(narrowest / scale)
	deepest := 0
	for i := range boxes {
		deepest = max(deepest, boxes[i].depth)
	}
	out := bufio.NewWriter(w)
	height := header + (deepest+1)*rowHeight + footer
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		width, height, width, height, html.EscapeString(g.Title))
	fmt.Fprint(out, styles())
	fmt.Fprintf(out, `<rect class="page" width="%d" height="%d"/>`+"\n", width, height)
	fmt.Fprintf(out, `<text class="title" x="%d" y="28">%s</text>`+"\n", margin, html.EscapeString(g.Title))
	fmt.Fprintf(out, `<text class="note" x="%d" y="48">%s</text>`+"\n", margin, html.EscapeString(g.Subtitle))
	for i := range boxes {
		g.writeBox(out, &boxes[i], root.total, scale, header+(deepest-boxes[i].depth)*rowHeight)
	}
	writeLegend(out, height-14, hidden)
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}

func (g *Graph) writeBox(w io.Writer, b *box, total int64, scale float64, y int) {
	x, wide := margin+float64(b.from)*scale, float64(b.total)*scale
	name := Plain(b.name)
	fmt.Fprintf(w, `<g><title>%s: %d %s, %.2f%%</title><rect class="%s" x="%.2f" y="%d" width="%.2f" height="%d"/>`,
		html.EscapeString(name), b.total, html.EscapeString(g.Unit), 100*float64(b.total)/float64(max(total, 1)),
		classOf(b.name), x, y, wide, rowHeight-1)
	if text := fit(name, wide-6); text != "" {
		fmt.Fprintf(w, `<text x="%.2f" y="%d">%s</text>`, x+3, y+rowHeight-5, html.EscapeString(text))
	}
	fmt.Fprint(w, "</g>\n")
}

// fit cuts a name to its room. It cuts the beginning, where C++ and Go have namespaces and packages.
func fit(name string, room float64) string {
	text, n := []rune(name), int(room/character)
	switch {
	case len(text) <= n:
		return name
	case n < fewest:
		return ""
	}
	return "…" + string(text[len(text)-n+1:])
}

// classOf returns a frame's kind and shade: the same for a function at every place.
func classOf(frame string) string {
	kind := kinds[0].class
	switch {
	case strings.HasSuffix(frame, Kernel):
		kind = kinds[2].class
	case strings.HasSuffix(frame, Unnamed):
		kind = kinds[1].class
	}
	h := fnv.New32a()
	h.Write([]byte(frame))
	return fmt.Sprintf("%s%d", kind, h.Sum32()%shades)
}

func styles() string {
	var b strings.Builder
	b.WriteString(`<style>
text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#16181d;pointer-events:none}
.title{font:600 17px system-ui,sans-serif}.note{font:12px system-ui,sans-serif;fill:#5a6270}
.page{fill:#fff}rect{stroke:none}g:hover rect{stroke:#16181d;stroke-width:1}
`)
	shadesOf := func(dark bool) {
		for _, k := range kinds {
			for i := range shades {
				colour, light := k.light, 64+4*i
				if dark {
					colour, light = k.dark, 30+3*i
				}
				fmt.Fprintf(&b, ".%s%d{fill:hsl(%s %d%%)}", k.class, i, colour, light)
			}
			b.WriteByte('\n')
		}
	}
	shadesOf(false)
	b.WriteString("@media(prefers-color-scheme:dark){\ntext{fill:#eef0f4}.note{fill:#a3abb8}.page{fill:#14161a}g:hover rect{stroke:#fff}\n")
	shadesOf(true)
	b.WriteString("}\n</style>\n")
	return b.String()
}

func writeLegend(w io.Writer, y, hidden int) {
	x := margin
	for _, k := range kinds {
		fmt.Fprintf(w, `<rect class="%s2" x="%d" y="%d" width="12" height="12"/><text class="note" x="%d" y="%d">%s</text>`+"\n",
			k.class, x, y-10, x+17, y, k.about)
		x += 40 + 7*len(k.about)
	}
	if hidden > 0 {
		fmt.Fprintf(w, `<text class="note" x="%d" y="%d">%d frames are too narrow to draw</text>`+"\n", x, y, hidden)
	}
}
