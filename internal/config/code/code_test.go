package code

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPagesAreComplete checks that each code has one page with all of its parts. That each constant has one, and that the
// examples have the mistakes, is tested in internal/cli/configure.
func TestPagesAreComplete(t *testing.T) {
	seen := map[Code]bool{}
	for _, p := range Pages() {
		t.Run(string(p.Code), func(t *testing.T) {
			require.Regexp(t, regexp.MustCompile(`^MS1\d{3}$`), p.Code)
			require.False(t, seen[p.Code])
			seen[p.Code] = true
			require.NotEmpty(t, p.Title)
			fix, _, _ := strings.Cut(p.Fix, "\n\n")
			for _, text := range []string{p.Cause, fix} {
				require.Regexp(t, `[.:]$`, text)
			}
			for _, c := range p.Istio {
				require.Regexp(t, `^IST\d{4}$`, c)
			}
		})
	}
}

func TestPageOf(t *testing.T) {
	for text, want := range map[string]Code{"MS1101": UnknownField, "ms1101": UnknownField, "IST0123": InjectionLabelConflict, "IST0173": SubsetWithoutWorkloads} {
		p, found := PageOf(text)
		require.True(t, found, text)
		require.Equal(t, want, p.Code)
	}
	_, found := PageOf("MS9999")
	require.False(t, found)
}
