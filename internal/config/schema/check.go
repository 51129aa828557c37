package schema

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
)

// checker compares a document with a shape. It reports every difference, not only
// the first. Its caller has bounded the document (see treeBuilder).
type checker struct{ *problem.Report }

// UnknownField begins the message about one.
const UnknownField = "unknown field"

// Check reports every difference between a document and a schema, not only the first. The document must have
// been read by readTree, which bounds its size.
func Check(r *problem.Report, at problem.Path, n *yaml.Node, s *Schema) { checker{r}.value(at, n, s) }

// CheckTexts reports the values of the map at a field of a document that are not text, such as labels.
func CheckTexts(r *problem.Report, at problem.Path, doc *yaml.Node) {
	steps, _ := problem.Steps(string(at))
	for _, s := range steps {
		doc, _ = child(doc, s)
	}
	Check(r, at, doc, OfType(reflect.TypeFor[map[string]string]()))
}

func (c checker) value(at problem.Path, n *yaml.Node, s *Schema) {
	n = unwrap(n)
	if n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // null is the same as absent
	}
	if c.Full() {
		return
	}
	switch s.kind {
	case anyType:
	case objectType:
		c.object(at, n, s)
	case mapType:
		c.entries(at, n, s)
	case listType:
		c.list(at, n, s)
	default:
		c.scalar(at, n, s)
	}
}

func (c checker) object(at problem.Path, n *yaml.Node, s *Schema) {
	if n.Kind != yaml.MappingNode {
		c.Errorf(code.WrongType, at, "must be an object with fields such as %s, got %s", spelling.Sample(s.names()), describe(n))
		return
	}
	seen := map[string]string{}
	c.pairs(at, n, func(key, val *yaml.Node) {
		f := s.fields[key.Value]
		if f == nil {
			c.Errorf(code.UnknownField, at.Key(key.Value), UnknownField+"%s", hintField(key.Value, s)).Rename(spelling.Nearest(key.Value, s.names()))
			return
		}
		if old, dup := seen[f.name]; dup && old != key.Value {
			c.Errorf(code.ListedTwice, at.Field(f.name), "is set twice, as %q and as %q; keep one", old, key.Value)
		}
		seen[f.name] = key.Value
		c.value(at.Field(f.name), val, f.schema())
	})
	for _, of := range s.oneofs {
		c.oneof(at, of, seen)
	}
}

func (c checker) oneof(at problem.Path, of []string, seen map[string]string) {
	var set []string
	for _, f := range of {
		if _, ok := seen[f]; ok {
			set = append(set, f)
		}
	}
	if len(set) > 1 {
		c.Errorf(code.ExclusiveFields, at.Field(set[1]), "only one of %s can be set; remove all but one", strings.Join(set, ", "))
	}
}

func (c checker) entries(at problem.Path, n *yaml.Node, s *Schema) {
	if n.Kind != yaml.MappingNode {
		c.Errorf(code.WrongType, at, "must be a map of names to values, got %s", describe(n))
		return
	}
	c.pairs(at, n, func(key, val *yaml.Node) { c.value(at.Key(key.Value), val, s.elem()) })
}

// pairs calls visit for each entry of a mapping, merged ones included, and reports
// keys that come twice.
func (c checker) pairs(at problem.Path, n *yaml.Node, visit func(key, val *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if isMerge(key) {
			c.merged(at, val, visit)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			c.Errorf(code.WrongType, at, "a key is %s; keys must be strings", describe(key))
			continue
		}
		if line, dup := seen[key.Value]; dup {
			c.Errorf(code.ListedTwice, at.Key(key.Value), "is set twice, on lines %d and %d; keep one", line, key.Line)
		}
		seen[key.Value] = key.Line
		visit(key, val)
	}
}

func (c checker) merged(at problem.Path, val *yaml.Node, visit func(key, val *yaml.Node)) {
	switch val = unwrap(val); {
	case val != nil && val.Kind == yaml.MappingNode:
		c.pairs(at, val, visit)
	case val != nil && val.Kind == yaml.SequenceNode:
		for _, e := range val.Content {
			c.merged(at, e, visit)
		}
	default:
		c.Errorf(code.WrongType, at, "a merge key (<<) must refer to a map")
	}
}

func (c checker) list(at problem.Path, n *yaml.Node, s *Schema) {
	if n.Kind != yaml.SequenceNode {
		c.Errorf(code.WrongType, at, "must be a list, got %s; put \"- \" before each element", describe(n))
		return
	}
	for i, e := range n.Content {
		if u := unwrap(e); u == nil || u.Kind == yaml.ScalarNode && u.ShortTag() == "!!null" {
			c.Errorf(code.EmptyValue, at.Index(i), "is empty; remove the element or fill it in")
			continue
		}
		c.value(at.Index(i), e, s.elem())
	}
}

func (c checker) scalar(at problem.Path, n *yaml.Node, s *Schema) {
	if n.Kind != yaml.ScalarNode {
		c.Errorf(code.WrongType, at, "must be %s, got %s", s.noun(), describe(n))
		return
	}
	tag := n.ShortTag()
	str := tag == "!!str" || tag == "!!timestamp" || tag == "!!binary"
	switch s.kind {
	case stringType, bytesType:
		if !str {
			c.Errorf(code.WrongType, at, "must be a string, got %s; put it in quotes: %q", describe(n), n.Value).Set(n.Value)
		} else if _, err := base64.StdEncoding.DecodeString(n.Value); s.kind == bytesType && err != nil {
			c.Errorf(code.InvalidFormat, at, "is not base64; encode it, or in a Secret write it into stringData as it is")
		}
	case boolType:
		if tag != "!!bool" {
			c.Errorf(code.WrongType, at, "must be true or false, got %s", describe(n))
		}
	case enumType:
		c.enum(at, n, s, tag)
	case durationType:
		if _, err := time.ParseDuration(n.Value); err != nil || !str {
			c.Errorf(code.InvalidDuration, at, "must be a duration such as 500ms, 1.5s or 2m, got %s", describe(n))
		}
	case intType, uintType, numberType:
		c.number(at, n, s, tag, str)
	case intOrStringType:
		if tag != "!!int" && !str {
			c.Errorf(code.WrongType, at, "must be a number or a name, got %s", describe(n))
		}
	}
}

func (c checker) enum(at problem.Path, n *yaml.Node, s *Schema, tag string) {
	if i, err := strconv.Atoi(n.Value); err == nil && tag == "!!int" && i >= 0 && i < len(s.values) {
		return // proto JSON takes numbers of enums
	}
	if !slices.Contains(s.values, n.Value) {
		c.Errorf(code.UnknownValue, at, "%q is not one of %s%s", n.Value, strings.Join(s.values, ", "), spelling.DidYouMean(n.Value, s.values)).Set(spelling.Nearest(n.Value, s.values))
	}
}

func (c checker) number(at problem.Path, n *yaml.Node, s *Schema, tag string, str bool) {
	if tag != "!!int" && tag != "!!float" && (!str || !s.lax) {
		hint := unquoteHint(n, str)
		p := c.Errorf(code.WrongType, at, "must be %s, got %s%s", s.noun(), describe(n), hint)
		if hint != "" {
			p.SetNumber(n.Value)
		}
		return
	}
	if s.kind == numberType {
		if _, err := strconv.ParseFloat(n.Value, 64); err != nil && tag != "!!int" {
			c.Errorf(code.WrongType, at, "must be a number, got %s", describe(n))
		}
		return
	}
	var f float64
	if err := n.Decode(&f); err != nil {
		var perr error
		if f, perr = strconv.ParseFloat(n.Value, 64); perr != nil {
			c.Errorf(code.WrongType, at, "must be %s, got %s", s.noun(), describe(n))
			return
		}
	}
	low, high := s.limits()
	if f != math.Trunc(f) || f < low || f > high {
		c.Errorf(code.WrongType, at, "must be %s, got %s", s.noun(), n.Value)
	}
}

func unquoteHint(n *yaml.Node, str bool) string {
	if _, err := strconv.ParseFloat(n.Value, 64); err == nil && str {
		return "; remove the quotes"
	}
	return ""
}

// limits are the bounds of an integer.
func (s *Schema) limits() (low, high float64) {
	if s.kind == uintType {
		return 0, math.Pow(2, float64(s.bits)) - 1
	}
	return -math.Pow(2, float64(s.bits-1)), math.Pow(2, float64(s.bits-1)) - 1
}

// noun is what messages call a value of the shape.
func (s *Schema) noun() string {
	switch s.kind {
	case intType:
		return "a whole number"
	case uintType:
		return "a whole number, 0 or more"
	case numberType:
		return "a number"
	case boolType:
		return "true or false"
	case enumType:
		return "one of " + strings.Join(s.values, ", ")
	case durationType:
		return "a duration such as 1.5s"
	case intOrStringType:
		return "a number or a name"
	}
	return "a string"
}

// describe returns what a node is, for messages.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		if len(n.Content) == 2 && n.Content[0].Kind == yaml.MappingNode { // {{ name }}
			return "a template that is not rendered: use for example helm template . | moonsail analyze -"
		}
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the boolean " + n.Value
	}
	return fmt.Sprintf("the string %q", n.Value)
}
