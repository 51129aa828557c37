package envoyformat

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxRegexProgram is how many instructions RE2 may make of a regular expression. Envoy rejects the whole resource
	// if one of its expressions has more.
	MaxRegexProgram = 32768
	// maxEstimate is MaxRegexProgram with a margin for classes that differ between the versions of Unicode in RE2 and
	// in Go.
	maxEstimate = MaxRegexProgram * 7 / 8
)

// CheckRegex returns an error if Envoy cannot take a regular expression: its syntax is not RE2's, or its program is too
// large. It compiles nothing, so that large expressions cost little.
func CheckRegex(text string) error {
	if _, err := syntax.Parse(text, syntax.Perl); err != nil {
		return err
	}
	if n := programSize(text); n > maxEstimate {
		return fmt.Errorf("the regular expression is too large: RE2 needs up to %d instructions, and %d is the limit: "+
			`repeat less often, or use smaller classes than \p{L}`, n, maxEstimate)
	}
	return nil
}

// programSize estimates the number of instructions in RE2's program. The estimate is never less than the number, for
// RE2 with UTF-8 and with Latin-1, which Envoy 1.40 uses.
func programSize(text string) int {
	const prologue = 6 // instructions that search for the beginning, fail and match
	re, err := syntax.Parse(keepAlternatives(text), syntax.Perl)
	if err != nil {
		return largest
	}
	s := sizer{classes: map[string]int{}}
	return s.size(re).closed().plus(prologue).instructions
}

// keepAlternatives begins alternatives with an empty group. Go's parser merges classes such as those of \pL|. into one,
// which RE2 does not always do.
func keepAlternatives(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		n := 1
		switch rest := text[i:]; {
		case strings.HasPrefix(rest, `\Q`):
			n = len(rest)
			if end := strings.Index(rest, `\E`); end >= 0 {
				n = end + 2
			}
		case rest[0] == '\\':
			n = min(2, len(rest))
		case rest[0] == '[':
			n = classLength(rest)
		}
		out.WriteString(text[i : i+n])
		if text[i] == '|' {
			out.WriteString("(?:)")
		}
		i += n
	}
	return out.String()
}

// classLength is the number of bytes of the class that begins text.
func classLength(text string) int {
	i := 1
	if strings.HasPrefix(text[i:], "^") {
		i++
	}
	for first := i; i < len(text); {
		switch rest := text[i:]; {
		case rest[0] == ']' && i > first:
			return i + 1
		case rest[0] == '\\':
			i += 2
		case strings.HasPrefix(rest, "[:") && strings.Contains(rest[2:], ":]"):
			i += strings.Index(rest[2:], ":]") + 4
		default:
			i++
		}
	}
	return len(text)
}

// largest bounds numbers, so that sums and products of them do not overflow.
const largest = 1 << 30

// cost describes the program of a part of an expression.
type cost struct {
	instructions int
	// zeroWidth is twice the number of groups and anchors that the part may begin or end with. After each of them, RE2 may list all
	// others that are reached without a character.
	zeroWidth int
	empty     bool // matches the empty text
}

func (c cost) plus(instructions int) cost {
	c.instructions = min(c.instructions+instructions, largest)
	return c
}

// closed adds the lists of a part that no other one follows.
func (c cost) closed() cost {
	z := min(c.zeroWidth, 1<<14)
	return c.plus(z * z)
}

type sizer struct {
	classes map[string]int // byteRanges by pairs
}

// choice is the number of instructions of a choice. RE2 flattens choices into lists, and jumps between lists.
const choice = 2

// size returns the cost of a node.
func (s *sizer) size(re *syntax.Regexp) cost {
	switch re.Op {
	case syntax.OpLiteral:
		return cost{instructions: literalSize(re)}
	case syntax.OpCharClass:
		return cost{instructions: s.classSize(re)}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return cost{instructions: anySize}
	case syntax.OpCapture:
		c := s.size(re.Sub[0]).plus(2)
		c.zeroWidth = min(c.zeroWidth+2, largest)
		return c
	case syntax.OpQuest, syntax.OpStar, syntax.OpPlus:
		c := s.size(re.Sub[0]).plus(choice)
		c.empty = c.empty || re.Op != syntax.OpPlus
		return c
	case syntax.OpRepeat:
		return repeated(s.size(re.Sub[0]).plus(choice), re)
	case syntax.OpConcat:
		return s.sequence(re.Sub)
	case syntax.OpAlternate:
		all := cost{}
		for _, sub := range re.Sub {
			c := s.size(sub)
			all = all.plus(c.instructions + choice)
			all.zeroWidth = min(all.zeroWidth+c.zeroWidth, largest)
			all.empty = all.empty || c.empty
		}
		return all
	case syntax.OpEmptyMatch:
		return cost{instructions: 1, empty: true}
	}
	return cost{instructions: 1, zeroWidth: 2, empty: true} // anchors
}

// repeated returns the cost of copies: RE2 makes xx(x(x(x)?)?)? of x{2,5}, and xx+ of x{2,}.
func repeated(one cost, re *syntax.Regexp) cost {
	n := max(re.Min, re.Max, 1)
	all := cost{instructions: min(one.instructions*n, largest), empty: one.empty || re.Min == 0}
	if one.empty {
		all.zeroWidth = min(one.zeroWidth*n, largest)
		return all
	}
	all.zeroWidth = min(2*one.zeroWidth, largest)
	return all.plus(min(n*cost{zeroWidth: all.zeroWidth}.closed().instructions, largest))
}

func (s *sizer) sequence(parts []*syntax.Regexp) cost {
	all, run, first := cost{empty: true}, cost{}, 0
	for _, part := range parts {
		c := s.size(part)
		all = all.plus(c.instructions)
		run.zeroWidth = min(run.zeroWidth+c.zeroWidth, largest)
		if c.empty {
			continue
		}
		if all.empty {
			first = run.zeroWidth
		}
		all.empty = false
		all = all.plus(run.closed().instructions)
		run.zeroWidth = c.zeroWidth
	}
	all.zeroWidth = min(first+run.zeroWidth, largest)
	return all
}

// anySize is the number of instructions for the byte ranges of all characters.
const anySize = 10

// literalSize is the number of bytes of a text. A letter of either case is one byte range in ASCII, and else a class.
func literalSize(re *syntax.Regexp) int {
	n := 0
	for _, r := range re.Rune {
		n += max(utf8.RuneLen(r), 1)
		if re.Flags&syntax.FoldCase == 0 {
			continue
		}
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			if f >= utf8.RuneSelf || r >= utf8.RuneSelf {
				n += max(utf8.RuneLen(f), 1) + 1
			}
		}
	}
	return n
}

func (s *sizer) classSize(re *syntax.Regexp) int {
	key := string(re.Rune)
	n, ok := s.classes[key]
	if !ok {
		n = byteRanges(re.Rune)
		s.classes[key] = n
	}
	return n
}

// byteRanges is the number of byte ranges for a class, which consists of pairs of a first and a last character. RE2
// shares the first bytes of characters, and ranges of last bytes.
func byteRanges(pairs []rune) int {
	n := 1
	prefixes, suffixes := map[string]bool{}, map[[2]byte]bool{}
	for i := 0; i+1 < len(pairs); i += 2 {
		splitRange(pairs[i], pairs[i+1], func(first, last []byte) {
			if end := len(first) - 1; end > 0 {
				suffixes[[2]byte{first[end], last[end]}] = true
				n++
				first, last = first[:end], last[:end]
			}
			for l := range first {
				if k := string(first[:l+1]) + string(last[:l+1]); !prefixes[k] || len(first) == 1 {
					prefixes[k] = true
					n++
				}
			}
		})
	}
	return n + len(suffixes)
}

// splitRange calls add for parts of a range whose encodings differ in ranges of bytes only.
func splitRange(lo, hi rune, add func(first, last []byte)) {
	if lo > hi {
		return
	}
	for _, limit := range []rune{0x7f, 0x7ff, 0xffff} {
		if lo <= limit && limit < hi {
			splitRange(lo, limit, add)
			splitRange(limit+1, hi, add)
			return
		}
	}
	if hi > 0x7f {
		for bits := 6; bits <= 18; bits += 6 {
			mask := rune(1)<<bits - 1
			if lo&^mask == hi&^mask {
				continue
			}
			if lo&mask != 0 {
				splitRange(lo, lo|mask, add)
				splitRange((lo|mask)+1, hi, add)
				return
			}
			if hi&mask != mask {
				splitRange(lo, (hi&^mask)-1, add)
				splitRange(hi&^mask, hi, add)
				return
			}
		}
	}
	add(utf8.AppendRune(nil, lo), utf8.AppendRune(nil, hi))
}
