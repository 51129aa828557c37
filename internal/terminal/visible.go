package terminal

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// visibleWriter is the output of all commands. Output has texts that others chose: names of objects, messages of Envoys, answers
// of control planes. A terminal obeys the control characters in them, so that visibleWriter writes these characters as
// escapes, for example \u001b, which mean the same character in a string of JSON. It keeps line feeds, tabs, and what Style
// writes on a terminal.
type visibleWriter struct {
	to      io.Writer
	painted bool // Style may have painted what is written

	mu   sync.Mutex
	rest []byte // begin of a character or of an escape sequence whose end is not written yet; guarded by mu
}

// Write implements io.Writer.
func (v *visibleWriter) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := b
	if len(v.rest) > 0 {
		text = append(v.rest, b...)
		v.rest = nil
	}
	out, rest := v.visible(text)
	v.rest = bytes.Clone(rest)
	if _, err := v.to.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// longestPaint is the length of the longest sequence that Style writes.
const longestPaint = len("\x1b[32m")

// visible returns text without characters that a terminal obeys, and the begin of a character at its end.
func (v *visibleWriter) visible(text []byte) (out, rest []byte) {
	at := 0 // text before it is in out
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c < 0x7f || c == '\n' || c == '\t' {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case c == '\x1b' && v.painted:
			if found := paint.FindIndex(text[i:min(len(text), i+longestPaint)]); found != nil && found[0] == 0 {
				i += found[1]
				continue
			}
			if end := text[i:]; len(end) < longestPaint && !bytes.ContainsAny(end[1:], "m\n\x1b") {
				return append(out, text[at:i]...), end
			}
		case r == utf8.RuneError && size <= 1 && !utf8.FullRune(text[i:]):
			return append(out, text[at:i]...), text[i:]
		case !isObeyed(r) && (r != utf8.RuneError || size > 1):
			i += size
			continue
		}
		out = append(out, text[at:i]...)
		if r == utf8.RuneError {
			r = rune(c) // a byte of another encoding
		}
		out = fmt.Appendf(out, `\u%04x`, r)
		i += size
		at = i
	}
	if at == 0 {
		return text, nil
	}
	return append(out, text[at:]...), nil
}

// isObeyed reports whether terminals or editors do something else with a character than to show it: control characters,
// separators of lines, and those that change the direction of the text around them.
func isObeyed(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// showControls makes the outputs of cmd visibleWriters.
func showControls(cmd *cobra.Command) {
	cmd.SetOut(visibleTo(cmd.OutOrStdout()))
	cmd.SetErr(visibleTo(cmd.ErrOrStderr()))
}

func visibleTo(w io.Writer) io.Writer {
	if _, is := w.(*visibleWriter); is {
		return w
	}
	return &visibleWriter{to: w, painted: StyleFor(w).colour}
}

// Raw returns the writer below a command's output. It is for data that another program reads, such as manifests, and not for
// people.
func Raw(w io.Writer) io.Writer {
	if v, is := w.(*visibleWriter); is {
		return v.to
	}
	return w
}
