package terminal

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Escape returns text that comes from elsewhere as it may be shown: characters that cannot be printed, which a terminal may
// obey and which may begin lines, are written as in Go, for example \n. The other ones stay, so that a second call changes
// nothing.
func Escape(text string) string { return escapeBut(text, "") }

// escapeBut does not escape the characters of kept.
func escapeBut(text, kept string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		one := text[i : i+size]
		if strings.ContainsRune(kept, r) || strconv.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			b.WriteString(one)
		} else {
			b.WriteString(strings.Trim(strconv.Quote(one), `"`))
		}
		i += size
	}
	return b.String()
}

// paint matches what Style writes.
var paint = regexp.MustCompile(`\x1b\[(?:0|1|2|31|32|33)m`)

// escapePainted escapes text that Style may have painted.
func escapePainted(text string) string {
	var b strings.Builder
	at := 0
	for _, found := range paint.FindAllStringIndex(text, -1) {
		b.WriteString(Escape(text[at:found[0]]) + text[found[0]:found[1]])
		at = found[1]
	}
	return b.String() + Escape(text[at:])
}
