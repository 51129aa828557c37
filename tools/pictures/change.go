package main

import (
	"fmt"
	"math"
	"strings"
)

// stages are the times of one change in milliseconds, as moonsail explain -o json has them.
type stages struct {
	StoreMs, DeriveMs, TranslateMs, SendMs, AckMs, TotalMs float64
}

// rounded rounds the ends of stages to a tenth of a millisecond, not their lengths, so that the printed stages add
// up to the total.
func (s stages) rounded() stages {
	end, before := 0.0, 0.0
	length := func(ms float64) float64 {
		end += ms
		now := math.Round(end*10) / 10
		out := now - before
		before = now
		return out
	}
	return stages{length(s.StoreMs), length(s.DeriveMs), length(s.TranslateMs), length(s.SendMs), length(s.AckMs), before}
}

// pathOfAChange draws the stages with their times, for light and dark pages.
func pathOfAChange(s stages, proxies int) []byte {
	const (
		step, width, height, top = 160, 138, 66, 34
		style                    = `.bg{fill:#fff}.box{fill:#eef4fb;stroke:#3b6ea5}.t{fill:#12324f;font-size:17px;font-weight:600}.s{fill:#4a5b6b;font-size:11px}.n{fill:#12324f;font-size:13px}.l{stroke:#3b6ea5;fill:none;stroke-width:1.6}.a{fill:#3b6ea5}
@media (prefers-color-scheme: dark){.bg{fill:#0d1117}.box{fill:#16263a;stroke:#6aa5e0}.t,.n{fill:#e0ecf8}.s{fill:#a3b5c6}.l{stroke:#6aa5e0}.a{fill:#6aa5e0}}`
	)
	s = s.rounded()
	boxes := []struct{ title, about, time string }{
		{"source", "file or API server", ""},
		{"store", "batch, snapshot", millis(s.StoreMs)},
		{"derive", "what proxies see", millis(s.DeriveMs)},
		{"translate", "encoded once", millis(s.TranslateMs)},
		{"send", "to proxies that need it", millis(s.SendMs)},
		{"Envoy", "ACK or NACK", "ack " + millis(s.AckMs)},
	}
	var b strings.Builder
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 964 200" font-family="system-ui, sans-serif" role="img" aria-label="The path of a change: source, store, derive, translate, send, Envoy. One revision goes through all stages, to the last ACK.">` + "\n")
	b.WriteString("<style>\n" + style + "\n</style>\n")
	b.WriteString(`<defs><marker id="m" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path class="a" d="M0 0L10 5L0 10z"/></marker></defs>` + "\n")
	b.WriteString(`<rect class="bg" width="964" height="200" rx="8"/>` + "\n")
	b.WriteString(`<text class="s" x="14" y="22">One revision goes through all stages. No timer stands between them.</text>` + "\n")
	for i, box := range boxes {
		x := 14 + i*step
		middle := x + width/2
		if i > 0 {
			fmt.Fprintf(&b, `<path class="l" d="M%d %dH%d" marker-end="url(#m)"/>`+"\n", x-step+width, top+height/2, x-2)
		}
		fmt.Fprintf(&b, `<rect class="box" x="%d" y="%d" width="%d" height="%d" rx="8"/>`, x, top, width, height)
		fmt.Fprintf(&b, `<text class="t" x="%d" y="%d" text-anchor="middle">%s</text><text class="s" x="%d" y="%d" text-anchor="middle">%s</text>`,
			middle, top+28, box.title, middle, top+48, box.about)
		fmt.Fprintf(&b, `<text class="n" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", middle, top+height+22, box.time)
	}
	first, last := 14+step+width/2, 14+(len(boxes)-1)*step+width/2
	fmt.Fprintf(&b, `<path class="l" d="M%d 132V158H%d V132" marker-end="url(#m)"/>`+"\n", last, first)
	fmt.Fprintf(&b, `<text class="s" x="%d" y="176" text-anchor="middle">the change log follows the revision to the last ACK of %d proxies: %s, the sum of the stages</text>`+"\n</svg>\n",
		(first+last)/2, proxies, millis(s.TotalMs))
	return []byte(b.String())
}

func millis(ms float64) string { return fmt.Sprintf("%.1f ms", ms) }
