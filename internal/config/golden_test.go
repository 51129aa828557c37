package config

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/schema"
)

var update = flag.Bool("update", false, "write the results to testdata")

// The sections of a golden file.
const (
	sectionInput    = "input.yaml"
	sectionModel    = "model.yaml"
	sectionProblems = "problems.txt"
	sectionSalvaged = "partial.yaml" // what counts meanwhile of objects of security with errors
)

// TestGolden decodes each testdata/*.txtar and compares model and problems.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) { golden(t, f) })
	}
}

// TestBroken checks the messages of broken input: each file of testdata/broken must have an error, and no object with an error
// is used.
func TestBroken(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.txtar")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 40)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			golden(t, f)
			a, err := txtar.ParseFile(f)
			require.NoError(t, err)
			objects, _, problems := decodeAll(t, section(a, sectionInput))
			require.Empty(t, objects)
			require.True(t, problems.HasErrors())
		})
	}
}

func golden(t *testing.T, file string) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	require.NoError(t, err)
	objects, partial, problems := decodeAll(t, section(a, sectionInput))
	var model, list strings.Builder
	for i, o := range objects {
		if i > 0 {
			model.WriteString("---\n")
		}
		model.WriteString(dump(t, o))
	}
	problems.Sort()
	for _, p := range problems {
		list.WriteString(p.String() + "\n")
	}
	if *update {
		out := &txtar.Archive{Comment: a.Comment, Files: []txtar.File{{Name: sectionInput, Data: section(a, sectionInput)}}}
		out.Files = appendSection(out.Files, sectionModel, model.String())
		out.Files = appendSection(out.Files, sectionProblems, list.String())
		out.Files = appendSection(out.Files, sectionSalvaged, partial)
		require.NoError(t, os.WriteFile(file, txtar.Format(out), 0o644))
		return
	}
	require.Equal(t, string(section(a, sectionModel)), model.String())
	require.Equal(t, string(section(a, sectionProblems)), list.String())
	require.Equal(t, string(section(a, sectionSalvaged)), partial)
}

func appendSection(files []txtar.File, name, data string) []txtar.File {
	if data == "" {
		return files
	}
	return append(files, txtar.File{Name: name, Data: []byte(data)})
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// decodeAll decodes each document of a file.
func decodeAll(t *testing.T, data []byte) (objects []any, partial string, problems problem.List) {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			return objects, partial, problems
		}
		require.NoError(t, err)
		out := Decoder{}.FromNode(&n)
		for i := range out.Problems {
			out.Problems[i].File = "input.yaml"
			out.Problems[i].Line = schema.LineOf(&n, out.Problems[i].Field)
		}
		problems = append(problems, out.Problems...)
		if out.Salvaged != nil {
			partial += "# " + out.Salvaged.Note.String() + "\n" + dump(t, out.Salvaged.Object)
		}
		if out.Object != nil {
			objects = append(objects, out.Object)
		}
	}
}
