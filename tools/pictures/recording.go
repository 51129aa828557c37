package main

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// The size of the recorded terminal, in characters, and of a character, in pixels.
const (
	columns, rows         = 132, 34
	charWidth, lineHeight = 7.2, 17.0
	marginLeft, marginTop = 16.0, 44.0
	fontSize              = 12
	windowWidth           = marginLeft*2 + columns*charWidth
	windowHeight          = marginTop + rows*lineHeight + 12
	scroll                = 80 * time.Millisecond
)

// line is a line of a terminal, with the time of its arrival.
type line struct {
	at   time.Duration
	text string
}

// recording draws an animation that shows each line when it arrived, once, and keeps the last screen.
// Readers who prefer no motion see the last screen at once.
func recording(lines []line) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="A recording of moonsail demo in a terminal">`+"\n", windowWidth, windowHeight)
	b.WriteString("<style>\n" +
		"text{font:" + fmt.Sprint(fontSize) + "px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dde6;white-space:pre}\n" +
		".b{font-weight:700;fill:#fff}.d{fill:#8a94a6}.g{fill:#4ade80}.y{fill:#fbbf24}.r{fill:#f87171}\n" +
		".l{opacity:0;animation:show 1ms linear forwards}@keyframes show{to{opacity:1}}\n")
	total := lines[len(lines)-1].at + time.Second
	b.WriteString(scrolling(lines, total))
	b.WriteString("@media(prefers-reduced-motion:reduce){.l{animation:none;opacity:1}.s{animation-duration:1ms}}\n</style>\n")
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" rx="8" fill="#14171c"/>`, windowWidth, windowHeight)
	b.WriteString(`<circle cx="20" cy="18" r="5" fill="#f87171"/><circle cx="38" cy="18" r="5" fill="#fbbf24"/><circle cx="56" cy="18" r="5" fill="#4ade80"/>`)
	fmt.Fprintf(&b, `<text x="%.0f" y="22" text-anchor="middle" class="d">$ make demo</text>`+"\n", windowWidth/2)
	fmt.Fprintf(&b, `<clipPath id="c"><rect x="0" y="%.0f" width="%.0f" height="%.0f"/></clipPath><g clip-path="url(#c)"><g class="s">`+"\n",
		marginTop-lineHeight+4, windowWidth, rows*lineHeight)
	for i, l := range lines {
		if l.text == "" {
			continue
		}
		fmt.Fprintf(&b, `<text class="l" style="animation-delay:%dms" x="%.0f" y="%.0f">%s</text>`+"\n",
			l.at.Milliseconds(), marginLeft, marginTop+float64(i)*lineHeight, painted(l.text))
	}
	b.WriteString("</g></g></svg>\n")
	return []byte(b.String())
}

// scrolling moves the lines up by one whenever a line arrives below the last row.
func scrolling(lines []line, total time.Duration) string {
	var b strings.Builder
	percent := func(at time.Duration) float64 { return 100 * float64(at) / float64(total) }
	b.WriteString("@keyframes scroll{")
	offset := 0.0
	for i := rows; i < len(lines); i++ {
		next := float64(i-rows+1) * lineHeight
		if i+1 < len(lines) && lines[i+1].at-lines[i].at < scroll {
			continue // several lines at once scroll together
		}
		fmt.Fprintf(&b, "%.3f%%{transform:translateY(-%.0fpx)}%.3f%%{transform:translateY(-%.0fpx)}",
			percent(lines[i].at-1), offset, percent(lines[i].at), next)
		offset = next
	}
	fmt.Fprintf(&b, "to{transform:translateY(-%.0fpx)}}\n.s{animation:scroll %dms linear forwards}\n", offset, total.Milliseconds())
	return b.String()
}

var sgr = regexp.MustCompile("\x1b\\[([0-9;]*)([A-Za-z])")

// classes are the styles of Select Graphic Rendition codes that moonsail prints.
var classes = map[string]string{"1": "b", "2": "d", "32": "g", "33": "y", "31": "r"}

// painted turns a terminal's codes into spans. What does not fit the width is cut.
func painted(text string) string {
	var b strings.Builder
	open, width := false, 0
	write := func(s string) {
		if room := columns - width; utf8.RuneCountInString(s) > room {
			s = string([]rune(s)[:max(0, room)])
		}
		width += utf8.RuneCountInString(s)
		b.WriteString(html.EscapeString(s))
	}
	for {
		at := sgr.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		write(text[:at[0]])
		code, kind := text[at[2]:at[3]], text[at[4]:at[5]]
		text = text[at[1]:]
		if kind != "m" {
			continue
		}
		if open {
			b.WriteString("</tspan>")
			open = false
		}
		if class := classes[code]; class != "" {
			fmt.Fprintf(&b, `<tspan class="%s">`, class)
			open = true
		}
	}
	write(text)
	if open {
		b.WriteString("</tspan>")
	}
	return b.String()
}
