package experiment

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// saved runs an experiment with a defect and reads what it saved.
func saved(t *testing.T) (*Report, string) {
	t.Helper()
	e, _, _ := made(7, map[string]float64{"base": 1, "a": 0.8, "b": 1.001})
	e.Variants = append(e.Variants, Variant{Name: "d", Skip: `no <script>"x" & y`})
	e.Compare = []Pair{{Variant: "a", Base: "base"}}
	e.Targets = []Target{{What: "keeps up", Metric: "qps", Variant: "a", Base: "base", Limit: 0.95, AtLeast: true}}
	for i := range e.Variants {
		e.Variants[i].Series, e.Variants[i].X = "one", float64(i)
	}
	e.Plots = append(e.Plots, Plot{Title: "By size", Metric: "qps", X: "size"}, Plot{Title: "Of nothing", Metric: "other"})
	r, err := Run(t.Context(), e)
	require.NoError(t, err)
	r.Charts = []Chart{
		{Title: "Over time", X: "s", Y: "1/s", Lines: []ChartLine{{Name: "base", Points: [][2]float64{{0, 1}, {1, 2}}}}},
		{Title: "Workers", Y: "connections", Names: []string{"most", "least"}, Bars: []ChartBar{{Label: "base", Values: []float64{3, 1}}}},
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	require.NoError(t, r.Save(dir))
	html, err := os.ReadFile(filepath.Join(dir, HTMLFile))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, JSONFile))
	require.NoError(t, err)
	var back Report
	require.NoError(t, json.Unmarshal(text, &back))
	return &back, string(html)
}

// TestRecomputed checks that the conclusions of report.json follow from its samples. It computes them with other code
// than the report.
func TestRecomputed(t *testing.T) {
	r, _ := saved(t)
	require.Equal(t, 7, r.Rounds)
	median := func(list []float64) float64 { // of an odd number
		list = slices.Clone(list)
		slices.Sort(list)
		require.Equal(t, 1, len(list)%2)
		return list[len(list)/2]
	}
	column := func(variant, metric string) (out []float64) {
		for _, s := range r.Variant(variant).Samples {
			out = append(out, s[metric])
		}
		require.Len(t, out, 7)
		return out
	}
	for _, v := range []string{"base", "a", "b"} {
		for _, m := range r.Metrics {
			s, list := r.Variant(v).Summary[m.Name], column(v, m.Name)
			require.Equal(t, median(list), s.Median)
			require.Equal(t, []float64{slices.Min(list), slices.Max(list)}, []float64{s.Min, s.Max})
			require.Equal(t, 7, s.N)
			below := 0
			for _, x := range list {
				if x < s.Q1 {
					below++
				}
			}
			require.LessOrEqual(t, below, 2, "a quarter is below the quartile")
		}
	}
	a, base := column("a", "qps"), column("base", "qps")
	for i := range a {
		a[i] /= base[i]
	}
	c, b := r.Comparisons[0], r.Targets[0]
	require.InDelta(t, median(a), c.Median, 1e-12)
	require.InDelta(t, median(a), b.Value, 1e-12)
	slices.Sort(a)
	require.InDelta(t, a[0], c.Low, 1e-12, "of 7 the lowest and highest hold the median with 98 %")
	require.InDelta(t, a[6], c.High, 1e-12)
	require.InDelta(t, 1-2/math.Pow(2, 7), c.Confidence, 1e-12)
	require.Equal(t, IsLower, c.Verdict)
	require.False(t, b.Met)
}

// TestPage checks that the page shows the defect, is complete, and needs no other file.
func TestPage(t *testing.T) {
	_, html := saved(t)
	require.Regexp(t, `(?s)<td>a</td><td>base</td><td class="t">requests/s</td><td>0\.8\dx</td>.*?<span class="bad">lower</span>`, html)
	require.Regexp(t, `(?s)keeps up.*?0\.8\dx.*?at least 0\.95x.*?<b class="bad">missed</b>`, html)
	require.Contains(t, html, "0 of 1 are met")
	require.Contains(t, html, "not measured: no &lt;script&gt;")
	require.NotContains(t, html, "<script")
	require.NotContains(t, html, "NaN")
	require.NotRegexp(t, `(src|href)=`, html)
	require.Contains(t, html, "prefers-color-scheme:dark")
	require.Contains(t, html, "@media print")
	pictures := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(html, -1)
	require.Len(t, pictures, 4, "bars, lines, and charts; none for metrics without samples")
	for _, p := range pictures {
		wellFormed(t, p)
	}
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

func TestInterval(t *testing.T) {
	one := []float64{9, 1, 8, 2, 7, 3, 6, 4, 5}
	low, high, confidence := Interval(one)
	require.Equal(t, []float64{2, 8}, []float64{low, high})
	require.InDelta(t, 1-2*10.0/512, confidence, 1e-12)
	_, _, confidence = Interval(one[:4])
	require.Less(t, confidence, Confidence)
	require.Equal(t, TooFew, Verdict(4, 2, 3, confidence, 1))
	_, _, confidence = Interval(one[:5])
	require.Greater(t, confidence, Confidence)
	low, high, confidence = Interval(nil)
	require.Zero(t, low+high+confidence)
}

// TestLimitThatIsMet checks that a target is certainly met if no sample exceeds its limit, also if samples equal it.
func TestLimitThatIsMet(t *testing.T) {
	r := &Report{Metrics: []Metric{{Name: "wrong"}}, Variants: []Result{{Name: "a"}}, Targets: []TargetResult{{Metric: "wrong", Variant: "a"}, {Metric: "wrong", Variant: "a", AtLeast: true}}}
	for range 5 {
		r.Variants[0].Samples = append(r.Variants[0].Samples, Sample{"wrong": 0})
	}
	r.Conclude()
	require.Equal(t, []string{Met, Met}, []string{r.Targets[0].Verdict, r.Targets[1].Verdict})
	r.Variants[0].Samples = r.Variants[0].Samples[:2]
	r.Conclude()
	require.True(t, r.Targets[0].Met)
	require.Equal(t, TooFew, r.Targets[0].Verdict, "two rounds are not enough")
}

func TestCells(t *testing.T) {
	r := &Result{Summary: map[string]Summary{"x": SummaryOf([]float64{1, 2, 3, 4, 5}), "y": SummaryOf([]float64{7})}}
	require.Equal(t, []string{"3.00 ±1.00", "7.00", ""}, []string{r.Cell("x"), r.Cell("y"), r.Cell("z")})
}

func TestMachine(t *testing.T) {
	m := ThisMachine(t.Context(), "")
	require.Positive(t, m.CPUs)
	require.NotEmpty(t, m.Go)
	require.Empty(t, m.Envoy)
	require.True(t, (&Machine{CPUs: 2, LoadBefore: 1.5}).Busy())
	require.False(t, (&Machine{CPUs: 4, LoadBefore: 1.5}).Busy())
}
