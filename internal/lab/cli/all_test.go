package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

func TestChosenExperiments(t *testing.T) {
	names := func(f allFlags) (out []string) {
		list, err := f.chosen()
		require.NoError(t, err)
		for _, x := range list {
			out = append(out, x.name)
		}
		return out
	}
	require.Equal(t, []string{"propagation", "routes", "throughput", "balance", "filters", "concurrency", "choices"}, names(allFlags{}))
	require.Contains(t, names(allFlags{kubeconfig: "k"}), "airbnb")
	require.Equal(t, []string{"routes", "balance"}, names(allFlags{only: []string{"balance", "routes"}}))
	for only, want := range map[string]string{
		"expedia": "--only expedia needs --kubeconfig",
		"nothing": "--only nothing: no such experiment: use one of propagation, airbnb",
	} {
		_, err := (&allFlags{only: []string{only}}).chosen()
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, &terminal.UsageError{})
	}
}

// TestReportOfAll checks that the page contains each report unchanged, and names a failed experiment.
func TestReportOfAll(t *testing.T) {
	f := allFlags{out: t.TempDir()}
	require.NoError(t, f.save([]labResult{
		{Name: "balance", Page: `<html><style>p{}</style><body><p class="x">5 &gt; 4</p></body></html>`, Report: json.RawMessage(`{"schema":1}`)},
		{Name: "routes", Text: "a < b", Failed: "exit status 1"},
	}))
	page, err := os.ReadFile(filepath.Join(f.out, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), `<p class="x">5 &gt; 4</p>`)
	require.Equal(t, 1, strings.Count(string(page), "<style>"), "of all reports the page has the style")
	require.NotRegexp(t, `(src|srcdoc)=`, string(page), "it needs no other file, and frames are cut off on paper")
	require.Contains(t, string(page), "<pre>a &lt; b</pre>")
	require.Contains(t, string(page), `<span class="bad">exit status 1</span>`)
	text, err := os.ReadFile(filepath.Join(f.out, "report.json"))
	require.NoError(t, err)
	var all struct{ Reports []labResult }
	require.NoError(t, json.Unmarshal(text, &all))
	require.Equal(t, "exit status 1", all.Reports[1].Failed)
	require.JSONEq(t, `{"schema":1}`, string(all.Reports[0].Report))
}
