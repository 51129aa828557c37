package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Style colours text. The zero value leaves it unchanged.
type Style struct{ colour bool }

// StyleFor returns a style with colours if w is a terminal that has them and NO_COLOR
// is empty (https://no-color.org).
func StyleFor(w io.Writer) Style {
	return Style{colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)}
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := Raw(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Good returns text in green.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Warn returns text in yellow.
func (s Style) Warn(text string) string { return s.paint("33", text) }

// Bad returns text in red.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Dim returns faint text.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Bold returns bold text.
func (s Style) Bold(text string) string { return s.paint("1", text) }

func (s Style) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
