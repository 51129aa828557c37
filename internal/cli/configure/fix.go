package configure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
)

// fixes are the changes of files that solve problems.
type fixes struct {
	edits  map[string][]file.Edit  // of each file
	solved map[string]problem.List // by these edits
	// left are the problems without a change.
	left problem.List
}

// fixesOf returns the changes for problems whose place and solution are known.
func fixesOf(tree *file.Tree, problems problem.List, contents map[string][]byte) fixes {
	out := fixes{edits: map[string][]file.Edit{}, solved: map[string]problem.List{}}
	lines := map[string][]string{}
	for _, p := range problems {
		if lines[p.File] == nil {
			lines[p.File] = strings.SplitAfter(string(contents[p.File]), "\n")
		}
		e, ok := tree.Edit(p, lines[p.File])
		if !ok || slices.ContainsFunc(out.edits[p.File], e.Overlaps) {
			out.left = append(out.left, p)
			continue
		}
		out.edits[p.File] = append(out.edits[p.File], e)
		out.solved[p.File] = append(out.solved[p.File], p)
	}
	return out
}

// apply returns the content of a file with its changes.
func apply(content []byte, edits []file.Edit) []byte {
	lines := strings.SplitAfter(string(content), "\n")
	edits = slices.Clone(edits)
	slices.SortFunc(edits, func(a, b file.Edit) int { return b.Column - a.Column }) // the last of a line first
	for _, e := range edits {
		line := []rune(lines[e.Line-1])
		lines[e.Line-1] = string(line[:e.Column]) + e.Text + string(line[e.Column+e.Length:])
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
	old, changed := patchNames(path)
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", old, changed)
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

// patchNames returns the names of a file in a patch. 'git apply' takes those below the current directory.
func patchNames(path string) (old, changed string) {
	if !filepath.IsLocal(path) {
		whole, err := filepath.Abs(path)
		here, hereErr := filepath.Abs(".")
		if err != nil || hereErr != nil {
			return path, path
		}
		if path, err = filepath.Rel(here, whole); err != nil || !filepath.IsLocal(path) {
			return whole, whole
		}
	}
	path = filepath.ToSlash(path)
	return "a/" + path, "b/" + path
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

// fix prints the changes of the named files, or makes them, and returns the problems that are left.
func (f *analyzeFlags) fix(out, errOut io.Writer, a analysis, stdin []byte, named []string) (problem.List, error) {
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
	left := changes.left
	for _, path := range slices.Sorted(maps.Keys(changes.edits)) {
		if why := unnamed(named, path); why != "" {
			if _, err := fmt.Fprintf(errOut, "%s: not fixed: %s\n", path, why); err != nil {
				return nil, err
			}
			left = append(left, changes.solved[path]...)
			continue
		}
		after := apply(contents[path], changes.edits[path])
		if err := checkSyntax(path, contents[path], after); err != nil {
			return nil, &terminal.UserError{What: "cannot fix the file", Where: path, Err: err, Next: "correct it by hand"}
		}
		if err := f.writeFix(out, named, path, contents[path], after); err != nil {
			return nil, err
		}
	}
	what, next := "have", " (write them with --fix --write)"
	if f.write {
		what, next = "had", ""
	}
	_, err := fmt.Fprintf(errOut, "%d of %s %s a fix%s\n", len(a.Problems)-len(left), terminal.Count(len(a.Problems), "problem"), what, next)
	return left, err
}

// unnamed returns why the command line does not allow changes of a file; empty: it does.
func unnamed(named []string, path string) string {
	why := "the command line does not name it"
	for _, name := range named {
		if isFile(name, path) {
			return ""
		}
		root, inside, err := directoryOf(name, path)
		if err != nil {
			continue
		}
		_, err = root.Stat(inside)
		_ = root.Close()
		if err == nil {
			return ""
		}
		why = "a link leads out of " + name
	}
	return why
}

// overwrite replaces the content of a file. Links below a named directory do not lead out of it.
func overwrite(named []string, path string, text []byte) error {
	for _, name := range named {
		if isFile(name, path) {
			return os.WriteFile(path, text, 0) // it exists
		}
	}
	err := os.ErrNotExist
	for _, name := range named {
		root, inside, notBelow := directoryOf(name, path)
		if notBelow != nil {
			continue
		}
		err = root.WriteFile(inside, text, 0) // it exists
		_ = root.Close()
		if err == nil {
			return nil
		}
	}
	return err
}

// isFile reports whether a name on the command line is a file's.
func isFile(name, path string) bool { return path == name || path == filepath.Clean(name) }

// directoryOf opens a directory that the command line names. inside is the file's name below it.
func directoryOf(name, path string) (root *os.Root, inside string, err error) {
	if inside, err = filepath.Rel(name, path); err != nil {
		return nil, "", err
	}
	if !filepath.IsLocal(inside) {
		return nil, "", fmt.Errorf("%s is not below %s", path, name)
	}
	root, err = os.OpenRoot(filepath.Clean(name))
	return root, inside, err
}

// checkSyntax returns an error if a change made valid YAML or JSON invalid.
func checkSyntax(path string, before, after []byte) error {
	switch {
	case file.Syntax(path, before) == nil && file.Syntax(path, after) != nil:
		return errors.New("the result is not valid YAML")
	case json.Valid(before) && !json.Valid(after):
		return errors.New("the result is not valid JSON")
	}
	return nil
}

func (f *analyzeFlags) writeFix(out io.Writer, named []string, path string, before, after []byte) error {
	if !f.write {
		return writeDiff(out, path, before, after)
	}
	if err := overwrite(named, path, after); err != nil {
		return &terminal.UserError{What: "cannot write the file", Where: path, Err: err, Next: "name files that can be written, or leave --write out"}
	}
	_, err := fmt.Fprintf(out, "%s: fixed\n", path)
	return err
}
