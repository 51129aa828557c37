package analyze

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

var update = flag.Bool("update", false, "write the results to testdata")

// TestGolden checks the objects of each testdata/*.txtar against each other. Decoding finds no errors in them.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			require.NotEmpty(t, a.Files)
			got := check(t, a.Files[0].Data)
			if *update {
				a.Files = append(a.Files[:1:1], txtar.File{Name: "problems.txt", Data: []byte(got)})
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
				return
			}
			require.Len(t, a.Files, 2)
			require.Equal(t, string(a.Files[1].Data), got)
		})
	}
}

// check decodes and checks, and lists problems by line.
func check(t *testing.T, data []byte) string {
	t.Helper()
	nodes := map[model.Key]*yaml.Node{}
	var objects []model.Object
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		out := config.Decoder{}.FromNode(&n)
		require.False(t, out.Problems.HasErrors(), out.Problems)
		if out.Object != nil {
			objects = append(objects, out.Object)
			nodes[out.Key] = &n
		}
	}
	got := Check(objects, "cluster.local")
	slices.Reverse(objects)
	require.Equal(t, got, Check(objects, "cluster.local"), "the order of objects must not matter")
	var b strings.Builder
	for i := range got {
		got[i].File, got[i].Line = "input.yaml", schema.LineOf(nodes[got[i].Object], got[i].Field)
	}
	got.Sort()
	for _, p := range got {
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}
