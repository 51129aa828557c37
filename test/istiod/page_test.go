package istiod

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	page     = "../../docs/reference/istiod-comparison.md"
	listFrom = "<!-- differences: written by go test ./test/istiod -update -->\n"
	listTo   = "<!-- end of differences -->\n"
)

// TestPageListsDifferences checks that the documentation has the differences of the list.
func TestPageListsDifferences(t *testing.T) {
	list, err := readDifferences(differencesFile)
	require.NoError(t, err)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), listFrom)
	require.True(t, ok, listFrom)
	got, after, ok := strings.Cut(rest, listTo)
	require.True(t, ok, listTo)
	want := rows(list)
	if flag.Lookup("update").Value.String() == "true" { // of package meshtest
		require.NoError(t, os.WriteFile(page, []byte(before+listFrom+want+listTo+after), 0o600))
		return
	}
	require.Equal(t, want, got, "write it with go test ./test/istiod -run TestPageListsDifferences -update")
}

func rows(list differences) string {
	var b strings.Builder
	b.WriteString("| difference | property | class | why |\n|---|---|---|---|\n")
	for _, l := range list {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", l.Title, l.What, l.Class, l.Reason)
	}
	return b.String()
}

func TestListIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"- {title: a, class: maybe, what: answer, reason: b}":                                        "use deliberate, istio-defect, open or simulator",
		"- {title: a, class: open, what: answer}":                                                    "title, reason and what are required",
		"- {title: a, class: open, what: answer, reason: b, istiod: '('}":                            "missing closing )",
		"[{title: a, class: open, what: x, reason: b}, {title: a, class: open, what: y, reason: b}]": "listed twice",
	} {
		_, err := parseDifferences("list.yaml", []byte(text))
		require.ErrorContains(t, err, want)
	}
}
