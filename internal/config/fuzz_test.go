package config

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
)

// FuzzDecode checks that no input panics, that an object never comes with errors, and that errors have a
// message.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/*.txtar", "testdata/broken/*.txtar"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			if a, err := txtar.ParseFile(file); err == nil {
				f.Add(section(a, sectionInput))
			}
		}
	}
	f.Add([]byte("a: &a [*a, *a]\n"))
	f.Add([]byte("apiVersion: v1\nkind: Pod\n<<: {metadata: {name: x}}\n"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		o, problems := Decoder{Domain: "cluster.local"}.FromYAML(doc)
		if o != nil && problems.HasErrors() {
			t.Fatalf("%v has errors and was used: %v", o.Metadata().Key, problems)
		}
		if out := decodeNode(doc); out.Salvaged != nil && (out.Object != nil || !out.Problems.HasErrors()) {
			t.Fatalf("a part of %v counts, which is good as a whole", out.Key)
		}
		for _, p := range problems {
			if p.Message == "" || p.Line < 0 {
				t.Fatalf("a problem without a message or place: %+v", p)
			}
		}
	})
}

func decodeNode(doc []byte) Decoded {
	var n yaml.Node
	if yaml.Unmarshal(doc, &n) != nil {
		return Decoded{}
	}
	return Decoder{}.FromNode(&n)
}
