package schema

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// TestLineInText checks lines in documents in blocks of text, whose lines follow those of the file.
func TestLineInText(t *testing.T) {
	const text = "data:\n  mesh: |\n    a: 1\n    b:\n      c: [1,\n        2]\n  bad: |\n    a: 1\n    - b\n  flat: \"a: 1\\nb: 2\"\n"
	var n yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &n))
	for field, want := range map[string]int{
		"data.mesh": 2, "data.mesh.a": 3, "data.mesh.b.c": 5, "data.mesh.b.c[1]": 6, "data.mesh.b.none": 4, "data.mesh.none": 2,
		"data.bad": 9, "data.bad.a": 9, "data.flat.b": 10,
	} {
		require.Equal(t, want, LineOf(&n, field), field)
	}
}

// TestSecondHeader finds where a second object begins in one document.
func TestSecondHeader(t *testing.T) {
	for text, want := range map[string]int{
		"apiVersion: v1\nkind: A\napiVersion: v1\nkind: B\n":           3,
		"kind: A\napiVersion: v1\nspec: {}\nkind: B\napiVersion: v1\n": 4,
		"apiVersion: v1\nkind: A\nkind: B\n":                           0,
		"apiVersion: v1\nkind: A\n":                                    0,
		"- kind\n":                                                     0,
	} {
		var n yaml.Node
		require.NoError(t, yaml.Unmarshal([]byte(text), &n))
		require.Equal(t, want, SecondHeader(&n), text)
	}
}
