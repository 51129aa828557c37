package file

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config/problem"
)

// Edit replaces a part of a line of a file.
type Edit struct {
	Line           int // from 1
	Column, Length int // in characters; the first column is 0
	Text           string
}

// Overlaps reports whether two changes are of the same characters.
func (e Edit) Overlaps(other Edit) bool {
	return e.Line == other.Line && e.Column < other.Column+other.Length && other.Column < e.Column+e.Length
}

// Edit returns the change that makes the correction of a problem. lines are those of its file. ok is false if there is none:
//   - The problem has no correction, or its place is unknown.
//   - The value is not a scalar, has an anchor or escapes, or takes several lines.
//   - The correction is a number that JSON does not have.
func (t *Tree) Edit(p problem.Problem, lines []string) (e Edit, ok bool) {
	if p.Fix == (problem.Fix{}) || p.Fix.Number && !json.Valid([]byte(p.Fix.Value)) {
		return e, false
	}
	name, node := t.Find(p)
	if p.Fix.Name != "" {
		node = name
	}
	if node == nil || node.Kind != yaml.ScalarNode || node.Line > len(lines) || node.Anchor != "" {
		return e, false
	}
	line := []rune(lines[node.Line-1])
	if node.Column < 1 || node.Column > len(line) {
		return e, false
	}
	old, ok := token(node, string(line[node.Column-1:]))
	text := textOf(p.Fix, node.Style)
	return Edit{node.Line, node.Column - 1, len([]rune(old)), text}, ok && old != text
}

// token returns the text of a scalar in a line, with its quotes. Text with escapes or of several lines is not changed.
func token(n *yaml.Node, line string) (string, bool) {
	text := n.Value
	switch n.Style &^ yaml.TaggedStyle {
	case 0:
	case yaml.DoubleQuotedStyle:
		text = `"` + text + `"`
	case yaml.SingleQuotedStyle:
		text = "'" + text + "'"
	default:
		return "", false
	}
	return text, text != "" && strings.HasPrefix(line, text)
}

// plain is text that YAML reads as text without quotes, unless it is a number, true, false or null.
var plain = regexp.MustCompile(`^[A-Za-z/_][A-Za-z0-9_./*-]*$`)

// textOf returns the token of a correction. It has the quotes of the token that it replaces, which JSON needs.
func textOf(f problem.Fix, style yaml.Style) string {
	text := f.Name + f.Value // one of them is empty
	switch style &^= yaml.TaggedStyle; {
	case f.Number, style == 0 && isPlain(text):
		return text
	case style == yaml.SingleQuotedStyle:
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	return strconv.Quote(text)
}

// isPlain reports whether YAML reads a text without quotes as this text.
func isPlain(text string) bool {
	var n yaml.Node
	return plain.MatchString(text) && yaml.Unmarshal([]byte(text), &n) == nil && len(n.Content) == 1 && n.Content[0].ShortTag() == "!!str"
}
