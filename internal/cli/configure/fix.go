package configure

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
)

// edit replaces a part of a line.
type edit struct {
	line, column, length int // from 1, from 0, in characters
	text                 string
}

// fixes are the changes of files that solve problems.
type fixes struct {
	edits map[string][]edit
	count int
	// left are the problems without a change.
	left problem.List
}

// fixesOf returns the changes for problems whose place and solution are known.
func fixesOf(tree *file.Tree, problems problem.List, contents map[string][]byte) fixes {
	out := fixes{edits: map[string][]edit{}}
	lines := map[string][]string{}
	for _, p := range problems {
		if lines[p.File] == nil {
			lines[p.File] = strings.SplitAfter(string(contents[p.File]), "\n")
		}
		e, ok := editFor(tree, p, lines[p.File])
		if !ok || slices.ContainsFunc(out.edits[p.File], e.overlaps) {
			out.left = append(out.left, p)
			continue
		}
		out.edits[p.File] = append(out.edits[p.File], e)
		out.count++
	}
	return out
}

func (e edit) overlaps(other edit) bool {
	return e.line == other.line && e.column < other.column+other.length && other.column < e.column+e.length
}

// editFor returns the change of a line for a problem.
func editFor(tree *file.Tree, p problem.Problem, lines []string) (edit, bool) {
	if p.Fix == (problem.Fix{}) {
		return edit{}, false
	}
	name, value := tree.Find(p)
	node, text := value, scalarText(p.Fix)
	if p.Fix.Name != "" {
		node, text = name, nameText(p.Fix.Name)
	}
	if node == nil || node.Kind != yaml.ScalarNode || node.Line > len(lines) || node.Anchor != "" {
		return edit{}, false
	}
	rest := []rune(lines[node.Line-1])
	if node.Column < 1 || node.Column > len(rest) {
		return edit{}, false
	}
	old, ok := tokenOf(node, string(rest[node.Column-1:]))
	ok = ok && old != text
	return edit{node.Line, node.Column - 1, len([]rune(old)), text}, ok
}

// tokenOf returns the text of a scalar in a line, with its quotes. Text with escapes or of several lines is not changed.
func tokenOf(n *yaml.Node, line string) (string, bool) {
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

// apply returns the content of a file with its changes.
func apply(content []byte, edits []edit) []byte {
	lines := strings.SplitAfter(string(content), "\n")
	edits = slices.Clone(edits)
	slices.SortFunc(edits, func(a, b edit) int { return b.column - a.column }) // the last of a line first
	for _, e := range edits {
		line := []rune(lines[e.line-1])
		lines[e.line-1] = string(line[:e.column]) + e.text + string(line[e.column+e.length:])
	}
	return []byte(strings.Join(lines, ""))
}

// contextLines is the number of lines around a change in a diff.
const contextLines = 3

// writeDiff writes the changes of a file in the unified format. Changes do not add or remove lines.
func writeDiff(w io.Writer, path string, before, after []byte) error {
	from, to := strings.SplitAfter(string(before), "\n"), strings.SplitAfter(string(after), "\n")
	if from[len(from)-1] == "" {
		from, to = from[:len(from)-1], to[:len(to)-1]
	}
	var b strings.Builder
	a, c := "a/"+filepath.ToSlash(path), "b/"+filepath.ToSlash(path)
	if filepath.IsAbs(path) {
		a, c = path, path
	}
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", a, c)
	for i := 0; i < len(from); i++ {
		if from[i] == to[i] {
			continue
		}
		begin, end := max(0, i-contextLines), i+1
		for j := i; j < min(len(from), end+2*contextLines); j++ {
			if from[j] != to[j] {
				end = j + 1
			}
		}
		last := min(len(from), end+contextLines)
		fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@\n", begin+1, last-begin, begin+1, last-begin)
		writeHunk(&b, from[begin:last], to[begin:last])
		i = last - 1
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeHunk(b *strings.Builder, from, to []string) {
	line := func(mark, text string) {
		b.WriteString(mark + text)
		if !strings.HasSuffix(text, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
	for i := 0; i < len(from); i++ {
		if from[i] == to[i] {
			line(" ", from[i])
			continue
		}
		first := i
		for ; i < len(from) && from[i] != to[i]; i++ {
			line("-", from[i])
		}
		for _, text := range to[first:i] {
			line("+", text)
		}
		i--
	}
}

// fix prints the changes of all files, or makes them, and returns the problems that are left.
func (f *analyzeFlags) fix(out, errOut io.Writer, a analysis, stdin []byte) (problem.List, error) {
	contents := map[string][]byte{}
	for _, p := range a.Problems {
		if _, read := contents[p.File]; read || p.File == "" {
			continue
		}
		text := stdin
		if p.File != file.Stdin || stdin == nil {
			var err error
			if text, err = os.ReadFile(p.File); err != nil {
				return nil, &terminal.UserError{What: "cannot read the file again", Where: p.File, Err: err, Next: "run the command again"}
			}
		}
		contents[p.File] = text
	}
	changes := fixesOf(a.tree, a.Problems, contents)
	for _, path := range slices.Sorted(maps.Keys(changes.edits)) {
		after := apply(contents[path], changes.edits[path])
		if file.Syntax(path, contents[path]) == nil && file.Syntax(path, after) != nil {
			return nil, &terminal.UserError{What: "cannot fix the file", Where: path, Err: errors.New("the result is not valid YAML"), Next: "correct it by hand"}
		}
		if err := f.writeFix(out, path, contents[path], after); err != nil {
			return nil, err
		}
	}
	what, next := "have", " (write them with --fix --write)"
	if f.write {
		what, next = "had", ""
	}
	_, err := fmt.Fprintf(errOut, "%d of %s %s a fix%s\n", changes.count, terminal.Count(len(a.Problems), "problem"), what, next)
	return changes.left, err
}

func (f *analyzeFlags) writeFix(out io.Writer, path string, before, after []byte) error {
	if !f.write {
		return writeDiff(out, path, before, after)
	}
	info, err := os.Stat(path)
	if err == nil {
		err = os.WriteFile(path, after, info.Mode().Perm())
	}
	if err != nil {
		return &terminal.UserError{What: "cannot write the file", Where: path, Err: err, Next: "name files that can be written, or leave --write out"}
	}
	_, err = fmt.Fprintf(out, "%s: fixed\n", path)
	return err
}
