package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/schema"
)

// Syntax returns why a file is not valid YAML, with the line; nil: it is. path is its name in messages.
func Syntax(path string, data []byte) *problem.Problem {
	data = withoutTabs(path, data)
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		switch err := dec.Decode(&n); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			p := syntaxProblem(path, data, err)
			return &p
		}
	}
}

// syntaxProblem moves the line in a parser's message to the problem.
func syntaxProblem(path string, data []byte, err error) problem.Problem {
	line, text := lineIn(err)
	if line > 0 && ofGrammar(text) {
		line = lineOfGrammar(data, line, text)
	}
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		line = 1 + bytes.Count(data[:max(0, bytes.Index(data, []byte("*"+m[1])))], []byte("\n"))
	}
	at, cause := unfinishedLine(data, line)
	if at == 0 {
		at, cause = tabLine(data, line, text)
	}
	if at > 0 {
		line = at
	}
	return problem.Problem{
		Severity: problem.SeverityError, Code: code.InvalidYAML, File: path, Line: max(line, 1), Message: schema.SyntaxCause(errors.New(text), cause),
	}
}

// unfinishedLine returns the line of text that is not YAML yet, and what to do with it; 0: none. named is the parser's line.
// A conflict of git is the cause wherever it is, and a template of Helm if it is not behind the error.
func unfinishedLine(data []byte, named int) (line int, cause string) {
	if bytes.IndexByte(data, 0) >= 0 {
		return 1, "the file is not text: write YAML or JSON in UTF-8"
	}
	template, at := 0, 0
	for text := range bytes.Lines(data) {
		at++
		switch {
		case bytes.HasPrefix(text, []byte("<<<<<<< ")):
			return at, fmt.Sprintf("line %d is a conflict marker of git: resolve the conflict", at)
		case template == 0 && at <= named+1 && bytes.Contains(text, []byte("{{")):
			template = at
		case at == named && bytes.ContainsRune(text, nonBreaking):
			return at, fmt.Sprintf("line %d has a non-breaking space: replace it by a space", at)
		}
	}
	if template == 0 {
		return 0, ""
	}
	return template, fmt.Sprintf("line %d is a template of Helm: render it first, for example helm template . | moonsail analyze -", template)
}

// nonBreaking is a space that YAML takes for a letter. Editors and web pages put it into copied text.
const nonBreaking = '\u00a0'

// explainSpace adds that a name or value has a non-breaking space, which looks right. Messages quote it.
func explainSpace(p *problem.Problem) {
	quoted := strings.Trim(strconv.QuoteToASCII(string(nonBreaking)), `"`)
	if text := p.Field + p.Message; strings.ContainsRune(text, nonBreaking) || strings.Contains(text, quoted) {
		p.Message += " (it has a non-breaking space: replace it by a space)"
	}
}

// unknownAnchor matches an error that has no line.
var unknownAnchor = regexp.MustCompile(`unknown anchor '(.+)' referenced`)

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// lineIn splits a parser's error into the line, 0 without one, and the rest.
func lineIn(err error) (line int, rest string) {
	text := err.Error()
	m := yamlLine.FindStringSubmatch(text)
	if m == nil {
		return 0, text
	}
	line, _ = strconv.Atoi(m[1])
	return line, strings.TrimPrefix(text, m[0])
}

// ofGrammar reports whether an error is about the grammar and not about a token. Its line is then before the one where
// the broken part begins.
func ofGrammar(text string) bool {
	return slices.ContainsFunc([]string{
		"did not find expected <", "did not find expected node content", "did not find expected key", "did not find expected '-' indicator",
		"did not find expected ',' or ", "found undefined tag handle", "found incompatible YAML document", "found duplicate %",
	}, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

// tabLine returns the line with a tab in its indentation that an error is about, and what to do with it; 0: none. If the tab
// violates the indentation of a block, the parser names this line or the one before.
func tabLine(data []byte, named int, text string) (line int, cause string) {
	last := named
	switch text {
	case "found character that cannot start any token":
	case "found a tab character that violates indentation":
		last++
	default:
		return 0, ""
	}
	lines := bytes.Split(data, []byte("\n"))
	for at := max(named, 1); at <= min(last, len(lines)); at++ {
		line := lines[at-1]
		if indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]; bytes.ContainsRune(indent, '\t') {
			return at, fmt.Sprintf("line %d is indented with a tab: use spaces", at)
		}
	}
	return 0, ""
}

// lineOfGrammar returns the line with the error. named is the line before a map or list that does not continue correctly,
// which may be long. For the text from there on, the parser names the line before the error. If that is the end of the
// file, the unclosed part is more useful.
func lineOfGrammar(data []byte, named int, text string) int {
	lines := bytes.SplitAfter(bytes.TrimRight(data, "\r\n"), []byte("\n"))
	var n yaml.Node
	if err := yaml.Unmarshal(bytes.Join(lines[min(named, len(lines)):], nil), &n); err != nil {
		if within, same := lineIn(err); same == text && within > 0 && named+within < len(lines) {
			return named + within + 1
		}
	}
	return min(named+1, len(lines))
}
