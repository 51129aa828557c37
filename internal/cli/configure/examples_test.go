package configure

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExamplesAlone checks that the answer about an example without the services that it leads to is true: they may be in
// other files. With the shop, which has them, there is nothing to report.
func TestExamplesAlone(t *testing.T) {
	const examples = "../../../examples"
	dirs, err := filepath.Glob(filepath.Join(examples, "*", "README.md"))
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, readme := range dirs {
		dir := filepath.Dir(readme)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			status, out, errOut := moonsail(t, "analyze", dir)
			require.Zero(t, status, out)
			require.Empty(t, errOut)
			out, _, _ = strings.Cut(out, "note: objects outside of these files are not known")
			lines := strings.Split(strings.TrimSpace(out), "\n")
			for _, line := range lines[:len(lines)-1] {
				require.Contains(t, line, " info: ")
				require.Contains(t, line, ".shop.svc.cluster.local: not found in these files, nor are other applications of namespace shop:")
			}
			status, out, _ = moonsail(t, "analyze", filepath.Join(examples, "shop"), dir)
			require.Zero(t, status, out)
			require.Contains(t, out, ": no problems")
		})
	}
}
