package file

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLineOfBrokenYAML checks that the problem has the line with the mistake.
func TestLineOfBrokenYAML(t *testing.T) {
	const doc = "a: 1\nb: 2\n---\n"
	for _, tc := range []struct {
		text string
		line int
		says string
	}{
		{"a: 1\nb: {c: d\ne: f\n", 3, "did not find expected ',' or '}'"},
		{doc + "a: {b: c", 4, "did not find expected ',' or '}'"},
		{doc + "a: {b: c\n\n", 4, "did not find expected ',' or '}'"},
		{doc + "{", 4, "did not find expected node content"},
		{"a: 1\nb: [1,\n  2\n}\n", 4, "did not find expected ',' or ']'"},
		{"a:\n  b: 1\n c: 2\n", 3, "did not find expected key"},
		{"a:\n  b: 1\n  - c\n", 3, "did not find expected key"},
		{"a: 1\n- b\n", 2, "did not find expected key"},
		{"- a\n- b\nc: d\n", 3, "did not find expected '-' indicator"},
		{doc + "a: |\n  x\n y\n", 6, "did not find expected key"},
		{doc + "a: 1\nb: !x!y z\n", 5, "found undefined tag handle"},
		{doc + "a: 1\n b: 2\n", 5, "mapping values are not allowed"},
		{doc + "a: 'b\n", 4, "found unexpected end of stream"},
		{doc + "a: 1\nfoo\n", 5, "could not find expected ':'"},
		{"a: 1\nb: @c\n", 2, "found character that cannot start any token"},
		{"a:\n\tb: 1\n", 2, "line 2 is indented with a tab: use spaces"},
		{"a:\n  b:\n  \tc: 1\n", 3, "line 3 is indented with a tab: use spaces"},
		{"a:\n  b: 1\n\tc: 2\n", 3, "line 3 is indented with a tab: use spaces"},
		{"{{- if .Values.x }}\na: b\n", 1, "did not find expected node content"},
		{"a: \x00b\n", 1, "the file is not text: write YAML or JSON in UTF-8 (control characters are not allowed)"},
		{"a: b\nc: \xff\n", 1, "the file is not text in UTF-8: convert it"},
		{"a: b: c\n", 1, "mapping values are not allowed"},
	} {
		p := Syntax("a.yaml", []byte(tc.text))
		require.NotNil(t, p, tc.text)
		require.Contains(t, p.Message, tc.says, tc.text)
		require.Equal(t, tc.line, p.Line, "%s\n%s", tc.says, tc.text)
	}
	require.Equal(t, "is not valid YAML: a value begins with a character that needs quotes: put it in quotes (found character that cannot start any token)", Syntax("a.yaml", []byte("b: @c\n\td: 1\n")).Message)
	require.Nil(t, Syntax("a.yaml", []byte(doc+"c: d\n")))
	require.Nil(t, Syntax("a.yaml", nil))
	require.Nil(t, Syntax("a.json", []byte("{\n\t\"a\": 1\n}\n")))
}
