package file

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/schema"
)

// Written is an object as users wrote it.
type Written struct {
	Object map[string]any
	Origin string // file:line
}

// Written returns all objects of a tree that can be read, in the order of files, including kinds that the mesh does not read.
func (t *Tree) Written() (out []Written) {
	for _, path := range slices.Sorted(maps.Keys(t.documents)) {
		seen := map[*yaml.Node]bool{}
		nodes := slices.Clone(t.documents[path])
		slices.SortStableFunc(nodes, func(a, b *yaml.Node) int { return schema.LineOf(a, "") - schema.LineOf(b, "") })
		for _, n := range nodes {
			value, err := schema.Tree(n)
			if object, ok := value.(map[string]any); ok && err == nil && !seen[n] {
				out = append(out, Written{object, fmt.Sprintf("%s:%d", path, schema.LineOf(n, ""))})
			}
			seen[n] = true
		}
	}
	return out
}

// Raw returns the objects of a directory as JSON, as users wrote them, in the order of files. It leaves out Secrets, and
// files that cannot be read.
func Raw(dir string) (out []json.RawMessage) {
	l := list(dir, nil)
	for _, path := range l.files {
		data, _, err := read(path)
		if err != nil {
			continue
		}
		p := parse(path, data, config.Decoder{})
		for _, d := range slices.Concat(p.docs, p.unread) {
			if len(d.content) > 0 && d.key.Kind != "Secret" {
				out = append(out, d.content)
			}
		}
	}
	return out
}
