package file

import (
	"maps"
	"os"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/istioapi"
	"github.com/moonsail/moonsail/internal/model"
)

// Tree is a directory of configuration, read once.
type Tree struct {
	Objects  []model.Object    // those that would be in force, in key order
	Problems istioapi.Problems // sorted
	Files    int
	nodes    map[string]*yaml.Node // by origin
}

// Analyze reads a directory, or a single file, without watching it.
func Analyze(dir string, d istioapi.Decoder) (*Tree, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	l := listing{files: []string{dir}, errs: map[string]error{}}
	if info.IsDir() {
		l = list(dir)
	}
	t := &Tree{Files: len(l.files), nodes: map[string]*yaml.Node{}}
	c := newCatalog()
	for _, path := range l.files {
		data, _, err := read(path)
		if err != nil {
			l.errs[path] = err
			continue
		}
		p := parse(path, data, d)
		for _, doc := range p.docs {
			if o := doc.usable(); o != nil {
				t.nodes[o.Metadata().Origin] = doc.node
			}
		}
		c.set(path, p, time.Time{})
	}
	t.Objects, t.Problems = c.objects(), c.problems()
	for _, path := range slices.Sorted(maps.Keys(l.errs)) {
		t.Problems = append(t.Problems, ioProblem(path, l.errs[path]))
	}
	return t, nil
}

// Locate fills in file and line of problems with objects of the tree.
func (t *Tree) Locate(problems istioapi.Problems) {
	origins := make(map[model.Key]string, len(t.Objects))
	for _, o := range t.Objects {
		origins[o.Metadata().Key] = o.Metadata().Origin
	}
	for i := range problems {
		p := &problems[i]
		origin, ok := origins[p.Object]
		if !ok || p.File != "" {
			continue
		}
		p.File, p.Line = splitOrigin(origin)
		if line := istioapi.LineOf(t.nodes[origin], p.Field); line > 0 {
			p.Line = line
		}
	}
}

// ioProblem says that something cannot be read.
func ioProblem(path string, err error) istioapi.Problem {
	return istioapi.Problem{
		Severity: istioapi.SeverityError, File: path,
		Message: "cannot be read: " + err.Error(),
	}
}
