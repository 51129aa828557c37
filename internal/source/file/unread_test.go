package file

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestObjectsOfUnreadableFiles checks that objects which stay in force know that their newest version cannot be read, and
// where.
func TestObjectsOfUnreadableFiles(t *testing.T) {
	const unclosed = "spec: {hosts: [\n"
	before := docs(ns("a", "v1"), ns("b", "v1"))
	for name, c := range map[string]struct {
		change func(*fixture)
		state  string
		wants  map[string]string // the problem of each object; those that are missing have none
	}{
		"syntax behind an object": {
			func(f *fixture) { f.write("x.yaml", docs(ns("a", "v2"), unclosed)) }, "a=v2 b=v1 c=v1",
			map[string]string{"b": "x.yaml:7: error: Namespace/b: its file is not valid YAML"},
		},
		"syntax before all": {
			func(f *fixture) { f.write("x.yaml", unclosed+before) }, "a=v1 b=v1 c=v1",
			map[string]string{"a": "x.yaml:3: error: Namespace/a: its file is not valid YAML", "b": "x.yaml:3: error: Namespace/b: its file is not valid YAML"},
		},
		"document without a kind": {
			func(f *fixture) { f.write("x.yaml", docs(ns("a", "v1"), "apiVersion: v1\nmetadata: {name: b}\n")) }, "a=v1 b=v1 c=v1",
			map[string]string{"b": "x.yaml:7: error: Namespace/b: its file has a document that may be this object and cannot be read, so it stays in force: has no kind"},
		},
		"document of an unknown kind": {
			func(f *fixture) {
				f.write("x.yaml", docs(ns("a", "v1"), "apiVersion: v1\nkind: Namespce\nmetadata: {name: b}\n"))
			}, "a=v1 b=v1 c=v1",
			map[string]string{"b": "stays in force: kind: "},
		},
		"link to itself": {
			func(f *fixture) {
				require.NoError(t, os.Symlink("x.yaml", f.path("x.tmp")))
				require.NoError(t, os.Rename(f.path("x.tmp"), f.path("x.yaml")))
			}, "a=v1 b=v1 c=v1",
			map[string]string{"a": "x.yaml: error: Namespace/a: its file cannot be read: ", "b": "x.yaml: error: Namespace/b: its file cannot be read: "},
		},
		"no directory": {
			func(f *fixture) { require.NoError(t, os.Rename(f.dir, f.dir+"~")) }, "a=v1 b=v1 c=v1",
			map[string]string{"a": "the directory is missing", "b": "the directory is missing", "c": "the directory is missing"},
		},
		"emptied": {func(f *fixture) { f.write("x.yaml", "") }, "c=v1", nil},
		"deleted": {func(f *fixture) { require.NoError(t, os.Remove(f.path("x.yaml"))) }, "c=v1", nil},
		"in force from another file": {
			func(f *fixture) {
				f.write("w.yaml", before)
				f.complains("x.yaml:1: error", "x.yaml:7: error")
				f.write("x.yaml", unclosed)
				f.complains("x.yaml:1: error", "x.yaml:1: error", "x.yaml:7: error")
			}, "a=v1 b=v1 c=v1",
			map[string]string{"a": "is already defined at", "b": "is already defined at"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, map[string]string{"x.yaml": before, "y.yaml": ns("c", "v1")})
			c.change(f)
			f.becomes(c.state)
			problemOf := func(name string) string {
				list := f.src.ProblemsOf(model.Key{Kind: model.KindNamespace, Name: name})
				if len(list) == 0 {
					return ""
				}
				require.Len(t, list, 1)
				return list[0].String()
			}
			for _, name := range []string{"a", "b", "c"} {
				if want := c.wants[name]; want != "" {
					f.until(func() bool { return problemOf(name) != "" }, name)
					require.Contains(t, problemOf(name), want)
				} else {
					require.Empty(t, problemOf(name), name)
				}
			}
			if name == "no directory" {
				require.NoError(t, os.Rename(f.dir+"~", f.dir))
			}
			for _, name := range []string{"w.yaml", "x.yaml"} {
				require.NoError(t, os.RemoveAll(f.path(name)))
			}
			f.write("x.yaml", docs(ns("a", "v3"), ns("b", "v3")))
			f.becomes("a=v3 b=v3 c=v1")
			f.complains()
			require.Empty(t, problemOf("a")+problemOf("b"))
		})
	}
}
