package file

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
)

const shopNS = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}"

func keysOf(p parsed) (out []string) {
	for _, d := range p.docs {
		if d.object != nil {
			out = append(out, d.key.Name)
		}
	}
	return out
}

// TestListsAreOpened also covers Lists whose kind and items come from aliases and merges.
func TestListsAreOpened(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"as it is":    {"{apiVersion: v1, kind: List, items: [" + shopNS + "]}", []string{"shop"}},
		"items alias": {"x: &items [" + shopNS + "]\nkind: List\nitems: *items\n", []string{"shop"}},
		"item alias":  {"x: &item " + shopNS + "\nkind: List\nitems: [*item]\n", []string{"shop"}},
		"kind alias":  {"x: &kind List\nkind: *kind\nitems: [" + shopNS + "]\n", []string{"shop"}},
		"merged":      {"<<: [{a: b}, {kind: List, items: [" + shopNS + "]}]\n", []string{"shop"}},
		"nested":      {"kind: List\nitems: [{kind: List, items: &i [" + shopNS + "]}, {kind: NamespaceList, items: *i}]\n", []string{"shop", "shop"}},
		"empty":       {"kind: List\nitems: []\n---\nkind: List\nitems:\n---\n" + shopNS, []string{"shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := parse("a.yaml", []byte(c.text), config.Decoder{})
			require.Equal(t, c.want, keysOf(p))
			require.Nil(t, p.nameless)
		})
	}
}

// TestListsThatCannotBeOpenedAreReported checks that problems have file and line, and that the rest of the file is read.
func TestListsThatCannotBeOpenedAreReported(t *testing.T) {
	multiplied := "x0: &l0 [" + shopNS + "]\n"
	for i := range 12 {
		multiplied += fmt.Sprintf("x%d: &l%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("{kind: List, items: *l%d},", i), 10))
	}
	for name, c := range map[string]struct{ text, problem string }{
		"no items":   {"apiVersion: v1\nkind: List\n", "a.yaml:1: error: items: is missing; put the objects"},
		"an object":  {"kind: List\nitems: " + shopNS + "\n", `a.yaml:2: error: items: must be a list of objects; put "- " before each`},
		"itself":     {"kind: List\nitems: &loop\n- kind: List\n  items: *loop\n", "a.yaml:4: error: items: contains the List itself, by an alias"},
		"multiplied": {multiplied + "kind: List\nitems: *l12\n", "is one List more than the 1000 that a document may have"},
	} {
		t.Run(name, func(t *testing.T) {
			p := parse("a.yaml", []byte(c.text+"---\n"+shopNS+"\n"), config.Decoder{})
			require.NotNil(t, p.nameless, "its previous objects stay in force")
			var got []string
			for _, d := range p.docs {
				for _, problem := range d.problems {
					got = append(got, problem.String())
				}
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], c.problem)
			names := keysOf(p)
			require.Equal(t, "shop", names[len(names)-1])
		})
	}
}
