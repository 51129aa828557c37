package propagation

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
	side := sideOf([]Sample{{Last: 3, CPU: 1, proxies: []float64{1, 2, 3}}})
	r := Result{Scenario: "route", Mesh: meshfiles.Shape{Services: 50, Proxies: 500}, Subject: side, Floor: &side, Bare: &side,
		State: &FinalState{Proxies: 3, Wrong: 1, First: []string{`<script>"a" & b`}}}
	r.bar("last", 1, 1.25, "x")
	r.bar("bytes", 5000, 3072, "B")
	g := Result{Scenario: "growth", Mesh: meshfiles.Shape{Services: 500, Proxies: 40}, Subject: side, Series: []Point{{50, side}, {500, side}}}
	s := Result{Scenario: "stalled", Mesh: r.Mesh, Subject: side, Floor: &side}
	m := Result{Scenario: memoryScenario, Mesh: meshfiles.Shape{Services: 200, Proxies: 400}, Subject: side}
	m.bar("a proxy, TLS, 200 services", 14.8, 20, "KiB")
	return &Report{Schema: 1, Target: "moonsail serve", Results: []Result{r, g, s, m}}
}

func TestReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	r := example()
	require.NoError(t, r.Save(dir))
	require.FileExists(t, filepath.Join(dir, "report.json"))
	b, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	html := string(b)
	require.Contains(t, html, "2 of 3 bars hold")
	require.Contains(t, html, "1 wrong")
	require.NotContains(t, html, "<script>")
	require.NotContains(t, html, "NaN")
	require.NotRegexp(t, `(src|href)=`, html, "it needs no other file")
	pictures := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(html, -1)
	require.Len(t, pictures, 6, "time and CPU of one scenario, proxies of two, growth and memory")
	require.Contains(t, html, "50x500, stalled: share of proxies that have it")
	require.Contains(t, html, "while none is", "it is not the floor that is beside it")
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

// A report of nothing, as of a run that failed at once, is a page all the same.
func TestEmptyReport(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, (&Report{Stopped: "no <luck>"}).WriteHTML(&b))
	require.Contains(t, b.String(), "no &lt;luck&gt;")
	require.Contains(t, b.String(), "nothing to plot")
}

func TestParseMeshes(t *testing.T) {
	m, err := ParseMeshes([]string{" 5x10", "50x500"})
	require.NoError(t, err)
	require.Equal(t, []meshfiles.Shape{{Services: 5, Proxies: 10, Bystanders: 2}, {Services: 50, Proxies: 500, Bystanders: 10}}, m)
	for _, bad := range [][]string{{"5x10", "5x10"}, {"500x1000", "50x500"}} {
		_, err := ParseMeshes(bad)
		require.ErrorContains(t, err, "meshes are ascending, and each is there once: "+bad[1]+" cannot come after "+bad[0])
	}
	_, err = ParseMeshes(nil)
	require.ErrorContains(t, err, "there is no mesh")
	for _, bad := range []string{"", "5", "x", "0x5", "5x-1", "axb"} {
		_, err := ParseMeshes([]string{bad})
		require.ErrorContains(t, err, "SERVICESxPROXIES", bad)
	}
}

func TestChoose(t *testing.T) {
	all, err := choose(nil)
	require.NoError(t, err)
	require.Len(t, all, len(Scenarios()))
	some, err := choose([]string{"route", "endpoint"})
	require.NoError(t, err)
	require.Equal(t, []string{"endpoint", "route"}, []string{some[0].Name, some[1].Name}, "in the order in which they run")
	_, err = choose([]string{"rout"})
	require.ErrorContains(t, err, `"rout"; there are connect-herd, endpoint`)
}
