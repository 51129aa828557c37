package istiod

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExamplesOfComments reads YAML in comments of an API definition.
func TestExamplesOfComments(t *testing.T) {
	text := `
// Text.
//
// ` + "```yaml" + `
// kind: A
// metadata:
//   name: a
// ` + "```" + `
message A {
  // ` + "```yaml" + `
  // kind: B
  // ` + "```" + `
  // ` + "```json" + `
  // {}
  // ` + "```" + `
}
`
	require.Equal(t, []string{"kind: A\nmetadata:\n  name: a\n", "kind: B\n"}, examples(text))
}

// TestCases reads the cases of this repository and of modules that it depends on.
func TestCases(t *testing.T) {
	own, err := txtarCases("corpus", corpus)
	require.NoError(t, err)
	require.NotEmpty(t, own)
	cases, err := dependencyCases()
	require.NoError(t, err)
	names := map[string]bool{}
	groups := map[string]int{}
	for _, k := range append(own, cases...) {
		require.False(t, names[k.name], k.name)
		names[k.name] = true
		groups[k.group()]++
		require.NotEmpty(t, k.proxies, k.name)
		require.NotEmpty(t, k.documents, k.name)
	}
	t.Log(groups)
}
