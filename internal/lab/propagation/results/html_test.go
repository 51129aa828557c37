package results

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

func example() *Report {
	side := SideOf([]Sample{{Last: 3, CPU: 1, ProxyTimes: []float64{1, 2, 3}}})
	r := Result{Scenario: "route", Mesh: meshfiles.Shape{Services: 50, Proxies: 500}, Subject: side, Baseline: &side, Bare: &side,
		State: &FinalState{Proxies: 3, Wrong: 1, First: []string{`<script>"a" & b`}}}
	r.AddTarget("last", 1, 1.25, "x")
	r.AddTarget("bytes", 5000, 3072, "B")
	g := Result{Scenario: "growth", Mesh: meshfiles.Shape{Services: 500, Proxies: 40}, Subject: side, Series: []Point{{50, side}, {500, side}}}
	s := Result{Scenario: "stalled", Drawing: Drawing{Lines: [2]string{"other proxies", "while none is stalled"}}, Mesh: r.Mesh, Subject: side, Baseline: &side}
	m := Result{Scenario: "memory", Drawing: Drawing{Bars: "memory"}, Mesh: meshfiles.Shape{Services: 200, Proxies: 400}, Subject: side}
	m.AddTarget("a proxy, TLS, 200 services", 14.8, 20, "KiB")
	return &Report{Schema: 1, Subject: "moonsail serve", Results: []Result{r, g, s, m}}
}

func TestReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	r := example()
	require.NoError(t, r.Save(dir))
	require.FileExists(t, filepath.Join(dir, "report.json"))
	b, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	html := string(b)
	require.Contains(t, html, "2 of 3 targets are met")
	require.Contains(t, html, "1 wrong")
	require.NotContains(t, html, "<script>")
	require.NotContains(t, html, "NaN")
	require.NotRegexp(t, `(src|href)=`, html, "the page is self-contained")
	pictures := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(html, -1)
	require.Len(t, pictures, 6, "time and CPU of one scenario, proxies of two, growth and memory")
	require.Contains(t, html, "50x500, stalled: share of proxies that have the change")
	require.Contains(t, html, "while none is stalled", "the other side is not the baseline")
	require.Contains(t, html, "14.8 KiB")
	for _, p := range pictures {
		wellFormed(t, p)
	}
	require.Equal(t, 1, r.Wrong())
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewBufferString(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
}

// A report without results, as of a run that failed at once, is a valid page.
func TestEmptyReport(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, (&Report{Stopped: "no <luck>"}).WriteHTML(&b))
	require.Contains(t, b.String(), "no &lt;luck&gt;")
	require.Contains(t, b.String(), "Nothing to plot")
}
