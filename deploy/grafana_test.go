package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGrafanaReadsDocumentedMetrics checks that the dashboards of deploy/grafana read metrics that the documentation
// lists. test/grafana parses and evaluates their queries with Prometheus's engine.
func TestGrafanaReadsDocumentedMetrics(t *testing.T) {
	known := ""
	for _, page := range []string{"../docs/reference/metrics.md", "../docs/observe.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		known += string(text)
	}
	files, err := filepath.Glob("grafana/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, json.Valid(text), file)
		names := regexp.MustCompile(`\b(?:moonsail|pilot|istio|citadel|galley)_[a-z0-9_]+`).FindAllString(string(text), -1)
		require.NotEmpty(t, names, file)
		for _, name := range names {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			require.True(t, strings.Contains(known, "`"+name+"`") || strings.Contains(known, "`"+base+"`"), "%s: %s is not documented", file, name)
		}
	}
}
