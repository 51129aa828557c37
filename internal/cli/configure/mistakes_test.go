package configure

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the answers to testdata")

// TestMistakes analyzes each *.yaml of testdata/mistakes/*.txtar, a mistake of users or a correct configuration, and
// compares the answer with the *.txt of its name.
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	inputs := 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { inputs += answers(t, file) })
	}
	require.GreaterOrEqual(t, inputs, 250)
}

// answers compares the answers of one file, and returns how many it has.
func answers(t *testing.T, file string) (inputs int) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	require.NoError(t, err)
	want := map[string]string{}
	for _, f := range a.Files {
		want[f.Name] = string(f.Data)
	}
	var out []txtar.File
	for _, f := range a.Files {
		name, isInput := strings.CutSuffix(f.Name, ".yaml")
		if !isInput {
			continue
		}
		inputs++
		_, got, errOut := withInput(t, string(f.Data), "analyze", "-")
		require.Empty(t, errOut, name)
		out = append(out, f, txtar.File{Name: name + ".txt", Data: []byte(got)})
		if !*update {
			require.Equal(t, want[name+".txt"], got, name)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(file, txtar.Format(&txtar.Archive{Comment: a.Comment, Files: out}), 0o644))
	}
	return inputs
}
