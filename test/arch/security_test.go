package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goTests returns the names of all tests of the repository.
func goTests(t *testing.T) map[string]bool {
	t.Helper()
	declared, out := regexp.MustCompile(`(?m)^func (Test\w+)\(`), map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			out[m[1]] = true
		}
		return err
	}))
	return out
}

// TestSecurityPagesNameTests checks that the tests that the pages about security name exist.
func TestSecurityPagesNameTests(t *testing.T) {
	tests := goTests(t)
	named, corpus := regexp.MustCompile("`(Test\\w+)`"), regexp.MustCompile("corpus (`[a-z0-9-]+`(?:, `[a-z0-9-]+`)*)")
	for _, page := range []string{"docs/design/security.md", "docs/design/security-advisories.md"} {
		text := read(t, page)
		found := named.FindAllStringSubmatch(text, -1)
		require.Greater(t, len(found), 10, page)
		for _, m := range found {
			require.True(t, tests[m[1]], "%s names %s, which does not exist", page, m[1])
		}
		for _, m := range corpus.FindAllStringSubmatch(text, -1) {
			for name := range strings.SplitSeq(m[1], ", ") {
				require.FileExists(t, filepath.Join(root, "test", "meshtest", "testdata", strings.Trim(name, "`")+".txtar"), page)
			}
		}
	}
}
