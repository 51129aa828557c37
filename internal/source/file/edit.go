package file

import (
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

// Edit returns the change that makes the correction of a problem; lines are those of its file. ok is false if there is none: the
// correction or the place is not known, or the field is not a scalar of its own in one line.
func (t *Tree) Edit(p problem.Problem, lines []string) (e Edit, ok bool) {
	if p.Fix == (problem.Fix{}) {
		return e, false
	}
	name, value := t.Find(p)
	node, text := value, scalarText(p.Fix)
	if p.Fix.Name != "" {
		node, text = name, nameText(p.Fix.Name)
	}
	if node == nil || node.Kind != yaml.ScalarNode || node.Line > len(lines) || node.Anchor != "" {
		return e, false
	}
	line := []rune(lines[node.Line-1])
	if node.Column < 1 || node.Column > len(line) {
		return e, false
	}
	old, ok := token(node, string(line[node.Column-1:]))
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

func nameText(name string) string {
	if plain.MatchString(name) {
		return name
	}
	return strconv.Quote(name)
}

func scalarText(f problem.Fix) string {
	var n yaml.Node
	if f.Number || plain.MatchString(f.Value) && yaml.Unmarshal([]byte(f.Value), &n) == nil && len(n.Content) == 1 && n.Content[0].ShortTag() == "!!str" {
		return f.Value
	}
	return strconv.Quote(f.Value)
}
