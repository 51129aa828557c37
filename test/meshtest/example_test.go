package meshtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/source/file"
)

const (
	examplesDir = "../../examples"
	shopDir     = examplesDir + "/shop" // the base of all others
)

// examples returns the repository's examples.
func examples(t *testing.T) []*File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(examplesDir, "*", "*.yaml"))
	require.NoError(t, err)
	var out []*File
	for i, path := range paths {
		dir := filepath.Dir(path)
		if i > 0 && dir == filepath.Dir(paths[i-1]) {
			continue
		}
		f, err := LoadExample(shopDir, dir)
		require.NoError(t, err)
		out = append(out, f)
	}
	require.NotEmpty(t, out)
	return out
}

func TestExamples(t *testing.T) {
	for _, f := range examples(t) {
		t.Run(f.Name, func(t *testing.T) {
			require.NotEmpty(t, f.Calls)
			require.Empty(t, analyze.Check(f.Objects, f.Mesh.Domain))
			f.run(t)
		})
	}
}

func TestExamplesOnEnvoy(t *testing.T) {
	for _, f := range examples(t) {
		t.Run(f.Name, f.onEnvoys)
	}
}

// TestExamplesHaveNoProblems analyzes the files of the shop and of one example, as the command does.
func TestExamplesHaveNoProblems(t *testing.T) {
	for _, f := range examples(t) {
		t.Run(f.Name, func(t *testing.T) {
			tree, err := file.AnalyzeAll(config.Decoder{}, nil, shopDir, f.Path)
			require.NoError(t, err)
			require.Empty(t, tree.Problems)
			require.Empty(t, analyze.Check(tree.Objects, f.Mesh.Domain))
		})
	}
}

// TestExamplesAreListed checks that the table of examples names each one, and that its README names its files.
func TestExamplesAreListed(t *testing.T) {
	table, err := os.ReadFile(filepath.Join(examplesDir, "README.md"))
	require.NoError(t, err)
	for _, f := range examples(t) {
		t.Run(f.Name, func(t *testing.T) {
			require.Contains(t, string(table), "]("+f.Name+"/README.md)")
			readme, err := os.ReadFile(filepath.Join(f.Path, "README.md"))
			require.NoError(t, err)
			files, err := filepath.Glob(filepath.Join(f.Path, "*.*"))
			require.NoError(t, err)
			for _, path := range files {
				if name := filepath.Base(path); name != "README.md" && name != expectations {
					require.Contains(t, string(readme), name)
				}
			}
		})
	}
}

func TestLoadExampleRefusesMistakes(t *testing.T) {
	for name, c := range map[string]struct{ expect, want string }{
		"no proxy":      {"-- calls.yaml --\n- {name: x, call: http://a/}\n", `call "x": has no proxy`},
		"unknown proxy": {"-- calls.yaml --\n- {name: x, proxy: p, call: http://a/}\n", `no proxy is named "p"`},
		"missing file":  {"-- calls.yaml --\n- {name: x, proxy: p, call: http://a/$(cat no.jwt)}\n", "no.jwt"},
		"unknown part":  {"-- x.yaml --\n", "is not a part of a test"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, expectations), []byte(c.expect), 0o600))
			_, err := LoadExample(shopDir, dir)
			require.ErrorContains(t, err, c.want)
		})
	}
}
