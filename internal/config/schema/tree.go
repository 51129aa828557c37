package schema

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config/problem"
)

// Bounds of a document, against aliases that multiply and endless nesting.
const (
	maxNodes = 500_000
	maxDepth = 200
)

var errTooLarge = errors.New("the document is too large or nested too deeply")

// treeBuilder turns YAML nodes into the values of encoding/json. It follows
// Kubernetes' reading of YAML: keys are strings, timestamps are strings.
type treeBuilder struct{ nodes int }

// Tree returns a document as the values of encoding/json. It fails for documents that are too large or nested too
// deeply.
func Tree(n *yaml.Node) (any, error) { return (&treeBuilder{}).value(n, 0) }

func (b *treeBuilder) value(n *yaml.Node, depth int) (any, error) {
	if b.nodes++; b.nodes > maxNodes || depth > maxDepth {
		return nil, errTooLarge
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return nil, nil
		}
		return b.value(n.Content[0], depth+1)
	case yaml.AliasNode:
		return b.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		return b.list(n, depth)
	case yaml.MappingNode:
		return b.object(n, depth)
	case yaml.ScalarNode:
		return scalar(n)
	}
	return nil, nil
}

func (b *treeBuilder) list(n *yaml.Node, depth int) (any, error) {
	out := make([]any, 0, len(n.Content))
	for _, c := range n.Content {
		v, err := b.value(c, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (b *treeBuilder) object(n *yaml.Node, depth int) (any, error) {
	out := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		v, err := b.value(val, depth+1)
		if err != nil {
			return nil, err
		}
		if isMerge(key) {
			mergeInto(out, v)
			continue
		}
		out[key.Value] = v
	}
	return out, nil
}

// isMerge reports whether key is YAML's "<<".
func isMerge(key *yaml.Node) bool { return key.Tag == "!!merge" }

// mergeInto adds the entries of v, a map or a list of maps, that out lacks.
func mergeInto(out map[string]any, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if _, ok := out[k]; !ok {
				out[k] = e
			}
		}
	case []any:
		for _, e := range v {
			mergeInto(out, e)
		}
	}
}

func scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, fmt.Errorf("line %d: %w", n.Line, err)
		}
		if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return nil, fmt.Errorf("line %d: %s is not a number that can be used here", n.Line, n.Value)
		}
		return v, nil
	}
	return n.Value, nil
}

// SecondHeader returns the line where a second object begins in the map of a document, since the line --- is missing; 0: there
// is none.
func SecondHeader(doc *yaml.Node) int {
	n := unwrap(doc)
	if n == nil || n.Kind != yaml.MappingNode {
		return 0
	}
	kinds, versions, line := 0, 0, 0
	for i := 0; i < len(n.Content); i += 2 {
		switch n.Content[i].Value {
		case "kind":
			kinds++
		case "apiVersion":
			versions++
		default:
			continue
		}
		if line == 0 && max(kinds, versions) > 1 {
			line = n.Content[i].Line
		}
	}
	if kinds < 2 || versions < 2 {
		return 0
	}
	return line
}

// Find returns the nodes of a field in a document, its name and its value; nil: the document does not have it as a node of its own.
// The name of an element of a list is nil.
func Find(doc *yaml.Node, field string) (name, value *yaml.Node) {
	steps, ok := problem.Steps(field)
	if !ok {
		return nil, nil
	}
	value = unwrap(doc)
	for _, s := range steps {
		if value == nil {
			return nil, nil
		}
		name, value = step(unwrap(value), s)
	}
	return name, value
}

// step returns the name and the value of a part of n, which is not from an alias or a merge: others have these, too.
func step(n *yaml.Node, s problem.Step) (name, value *yaml.Node) {
	switch {
	case n == nil:
	case s.Index >= 0 && n.Kind == yaml.SequenceNode && s.Index < len(n.Content):
		return nil, n.Content[s.Index]
	case s.Index < 0 && n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == s.Name {
				return n.Content[i], n.Content[i+1]
			}
		}
	}
	return nil, nil
}

// LineOf finds the line of a field in a document, or of the nearest part of it that
// the document has. It is 0 where nothing is known. A field may lead into a document in a block of text, such as data.mesh.
func LineOf(doc *yaml.Node, field string) int {
	if doc == nil {
		return 0
	}
	n, line := unwrap(doc), doc.Line
	if n != nil {
		line = n.Line
	}
	list, _ := problem.Steps(field)
	for i, s := range list {
		var at int
		if n, at = child(n, s); n == nil {
			break
		}
		line = at
		if text := unwrap(n); text != nil && text.Kind == yaml.ScalarNode && text.Style == yaml.LiteralStyle {
			return cmp.Or(lineInText(text, list[i+1:]), line)
		}
	}
	return line
}

// lineInText returns the line of a field of a document in a block of text, or of its syntax error; 0: nothing is known. The text
// begins in the line after its node.
func lineInText(text *yaml.Node, steps []problem.Step) int {
	var inner yaml.Node
	if err := yaml.Unmarshal([]byte(text.Value), &inner); err != nil {
		m := lineOfError.FindStringSubmatch(err.Error())
		if m == nil {
			return 0
		}
		n, _ := strconv.Atoi(m[1])
		if strings.Contains(err.Error(), "did not find expected") {
			n++ // errors of grammar are behind the line that the parser names
		}
		return text.Line + min(n, strings.Count(text.Value, "\n"))
	}
	n, line := unwrap(&inner), 0
	for _, s := range steps {
		var at int
		if n, at = child(n, s); n == nil {
			break
		}
		line = at
	}
	if line == 0 {
		return 0
	}
	return text.Line + line
}

var lineOfError = regexp.MustCompile(`line (\d+)`)

func unwrap(n *yaml.Node) *yaml.Node {
	for range maxDepth {
		switch {
		case n == nil:
			return nil
		case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
			n = n.Content[0]
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		default:
			return n
		}
	}
	return nil
}

// child finds the part of n that s names, and the line to show for it: the key's.
func child(n *yaml.Node, s problem.Step) (*yaml.Node, int) {
	if n = unwrap(n); n == nil {
		return nil, 0
	}
	if s.Name == "" {
		if n.Kind == yaml.SequenceNode && s.Index < len(n.Content) {
			return n.Content[s.Index], n.Content[s.Index].Line
		}
		return nil, 0
	}
	if n.Kind != yaml.MappingNode {
		return nil, 0
	}
	for _, same := range []func(a, b string) bool{func(a, b string) bool { return a == b }, sameField} {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if same(n.Content[i].Value, s.Name) {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if isMerge(n.Content[i]) {
			if found, line := child(n.Content[i+1], s); found != nil {
				return found, line
			}
		}
	}
	return nil, 0
}

// sameField compares field names without regard to snake and camel case: proto JSON
// takes both.
func sameField(a, b string) bool {
	return strings.EqualFold(strings.ReplaceAll(a, "_", ""), strings.ReplaceAll(b, "_", ""))
}
