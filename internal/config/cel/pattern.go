package cel

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

// maxPattern is how many instructions a regular expression may have for Envoy in an expression.
const maxPattern = 100

// checkPattern checks the arguments of matches where they are one text: Envoy compiles it at once.
func checkPattern(arguments []token) error {
	if len(arguments) != 2 || arguments[0].kind != literalToken {
		return nil
	}
	pattern, ok := textOf(arguments[0].text)
	if !ok {
		return nil
	}
	if _, err := regexp.Compile(pattern); err != nil {
		return fmt.Errorf("%s is no RE2 regular expression: %w", arguments[0].text, err)
	}
	if n := patternSize(pattern); n > maxPattern {
		return fmt.Errorf("%s is too large a regular expression for Envoy (%d instructions, %d are the limit): repeat less, and use smaller classes", arguments[0].text, n, maxPattern)
	}
	return nil
}

// patternSize is about how many instructions RE2 makes of an expression: those of Go, with one for each byte of a character
// or class that RE2 must distinguish.
func patternSize(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	n := 2 // that look for the beginning
	for i := range prog.Inst {
		switch inst := &prog.Inst[i]; inst.Op {
		case syntax.InstRune1:
			n += utf8.RuneLen(inst.Rune[0])
		case syntax.InstRune:
			n += classSize(inst.Rune)
		case syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			n += 2 + beyondASCII
		case syntax.InstNop:
		default:
			n++
		}
	}
	return n
}

// beyondASCII is the number of instructions that match all characters of several bytes.
const beyondASCII = 6

// classSize takes pairs of a first and a last character; a single one is a character without regard to case.
func classSize(ranges []rune) int {
	n := 0
	for i := 0; i+1 < len(ranges); i += 2 {
		switch first, last := ranges[i], ranges[i+1]; {
		case last < utf8.RuneSelf:
			n++
		case last == utf8.MaxRune:
			n += beyondASCII
			if first < utf8.RuneSelf {
				n++
			}
		default:
			n += 2
		}
	}
	return max(n, 1)
}
