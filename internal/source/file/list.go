package file

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/schema"
)

// maxLists bounds the Lists in one document, counted with each alias to them, which may multiply.
const maxLists = 1000

// lists opens the Lists of one document, including aliases and merges.
type lists struct {
	path   string
	d      config.Decoder
	opened int
	above  []*yaml.Node // the enclosing Lists, from the outside in
}

// add decodes a document, or each item of a List.
func (p *parsed) add(l *lists, n *yaml.Node) {
	items, err := l.items(n)
	switch {
	case err != nil:
		p.cannotOpen(l, n, err)
	case items == nil:
		p.decode(l.path, n, l.d.FromNode)
	default:
		l.opened++
		l.above = append(l.above, items)
		for _, item := range items.Content {
			p.add(l, item)
		}
		l.above = l.above[:len(l.above)-1]
	}
}

// items returns the items of a Kubernetes List; nil if n is none.
func (l *lists) items(n *yaml.Node) (*yaml.Node, error) {
	kind, items := entry(n, "kind"), entry(n, "items")
	if kind == nil || kind.Kind != yaml.ScalarNode || !strings.HasSuffix(kind.Value, "List") {
		return nil, nil
	}
	switch {
	case items == nil && kind.Value == "List":
		return nil, fmt.Errorf("is missing; put the objects of the List there, or write them as separate documents, with --- between them")
	case items == nil:
		return nil, nil // another kind with such a name
	case items.Kind == yaml.ScalarNode && items.ShortTag() == "!!null":
		return &yaml.Node{Kind: yaml.SequenceNode}, nil
	case items.Kind != yaml.SequenceNode:
		return nil, fmt.Errorf(`must be a list of objects; put "- " before each of them`)
	case slices.Contains(l.above, items):
		return nil, fmt.Errorf("contains the List itself, by an alias; write the objects out")
	case l.opened >= maxLists:
		return nil, fmt.Errorf("is one List more than the %d that a document may have, counting aliases; write the objects as separate documents", maxLists)
	}
	return items, nil
}

// cannotOpen records a List that cannot be read: it may have contained any object.
func (p *parsed) cannotOpen(l *lists, n *yaml.Node, err error) {
	if l.opened > maxLists {
		return // one message is enough
	}
	if l.opened == maxLists {
		l.opened++
	}
	line := n.Line // the line of the alias
	if n.Kind != yaml.AliasNode {
		line = schema.LineOf(n, "items")
	}
	doc := document{node: n, problems: problem.List{{
		Severity: problem.SeverityError, Code: code.InvalidList, File: l.path, Line: line, Field: "items", Message: err.Error(),
	}}}
	p.docs = append(p.docs, doc)
	p.unnamed(doc.problems)
	p.hidden = p.hidden || hides(n, &doc)
}

// maxMerges bounds nested merges, which may be cyclic.
const maxMerges = 20

// entry returns the value of a mapping's key, including aliases and merges; nil: none.
func entry(n *yaml.Node, key string) *yaml.Node { return find(n, key, maxMerges) }

func find(n *yaml.Node, key string, depth int) *yaml.Node {
	n = target(n)
	if n == nil || n.Kind != yaml.MappingNode || depth == 0 {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return target(n.Content[i+1])
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			continue
		}
		if found := merged(n.Content[i+1], key, depth-1); found != nil {
			return found
		}
	}
	return nil
}

// merged searches a merged map, or a list of them.
func merged(n *yaml.Node, key string, depth int) *yaml.Node {
	if n = target(n); n == nil || n.Kind != yaml.SequenceNode {
		return find(n, key, depth)
	}
	for _, part := range n.Content {
		if found := find(part, key, depth); found != nil {
			return found
		}
	}
	return nil
}

// target returns the node of a document or an alias.
func target(n *yaml.Node) *yaml.Node {
	switch {
	case n == nil:
		return nil
	case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
		return target(n.Content[0])
	case n.Kind == yaml.AliasNode:
		return n.Alias
	}
	return n
}
