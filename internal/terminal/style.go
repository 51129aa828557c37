package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Style paints text, or leaves it as it is. The zero value does not paint.
type Style struct{ colour bool }

// StyleFor paints when w is a terminal that understands colours and the user has not
// asked for none (https://no-color.org: NO_COLOR set to anything but "").
func StyleFor(w io.Writer) Style {
	return Style{colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)}
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Good is green.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Warn is yellow.
func (s Style) Warn(text string) string { return s.paint("33", text) }

// Bad is red.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Dim is faint.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Bold is bold.
func (s Style) Bold(text string) string { return s.paint("1", text) }

func (s Style) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
