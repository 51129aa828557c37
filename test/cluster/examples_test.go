package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/kubetest"
)

// TestExamplesInACluster applies each folder of examples/ on top of the shop, as its README does. The API server must
// accept all objects, and Moonsail must find no problem with them and with what the cluster's controllers make of them.
func TestExamplesInACluster(t *testing.T) {
	c := kubetest.Start(t)
	shop := manifests(t, "../../examples/shop")
	c.Apply(t, "", shop)
	noProblems(t, c)
	readmes, err := filepath.Glob("../../examples/*/README.md")
	require.NoError(t, err)
	require.Greater(t, len(readmes), 1)
	for _, readme := range readmes {
		folder := filepath.Dir(readme)
		text := manifests(t, folder)
		if text == shop {
			continue
		}
		t.Run(filepath.Base(folder), func(t *testing.T) {
			c.Apply(t, "", text)
			noProblems(t, c)
			c.Delete(t, "", text)
		})
	}
}

// manifests returns the YAML that kubectl reads from a folder.
func manifests(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files, folder)
	var texts []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		texts = append(texts, string(b))
	}
	return strings.Join(texts, "---\n")
}

// noProblems waits until analyze finds none: Services have endpoints only once their Pods are ready.
func noProblems(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	c.Eventually(t, "a cluster without problems", func(context.Context) error {
		out, err := analyze(t, c.Kubeconfig(), "info")
		if err == nil && !strings.Contains(out, "no problems") {
			err = fmt.Errorf("analyze finds:\n%s", out)
		}
		return err
	})
}
