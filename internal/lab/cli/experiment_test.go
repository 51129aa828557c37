package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/experiment"
)

func TestLabExperimentsRefuse(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"throughput", "--concurrency", "-1"}, "concurrency [-1]: use numbers from 0"},
		{[]string{"throughput", "--connections", "0"}, "connections: use 1 to 4096"},
		{[]string{"throughput", "--rate", "1"}, "rates: use at least 10 requests per second"},
		{[]string{"throughput", "--rounds", "-1"}, "--rounds must not be negative"},
		{[]string{"filters", "--budget", "1s"}, "--budget must be at least 30s"},
		{[]string{"filters", "--rate", "1"}, "at least 10 requests per second"},
		{[]string{"choices", "--only", "nothing"}, `unknown choice "nothing": use Moonsail's, again`},
		{[]string{"choices", "--own", "x"}, "--own x: use NAME=FILE"},
		{[]string{"load", "x"}, `options "x": `},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			status, out, errOut := runLab(t, tc.args...)
			require.Equal(t, 2, status)
			require.Empty(t, out)
			require.Contains(t, errOut, tc.want)
		})
	}
}

// TestPrintExperiment checks that the table has the numbers of the report, and marks uncertain ones.
func TestPrintExperiment(t *testing.T) {
	samples := func(values ...float64) (out []experiment.Sample) {
		for _, v := range values {
			out = append(out, experiment.Sample{"qps": v, "more": v})
		}
		return out
	}
	r := &experiment.Report{
		Title: "Made up", Rounds: 5, RoundsAsked: 7, Stopped: "no luck", Notes: []string{"noted"}, Facts: []string{"a fact"},
		Machine: experiment.Machine{CPUs: 2, LoadBefore: 9},
		Metrics: []experiment.Metric{{Name: "qps", Title: "requests/s", Better: experiment.Higher}, {Name: "more", Title: "MORE", Detail: true}},
		Variants: []experiment.Result{
			{Name: "base", Samples: samples(10, 11, 12, 11, 10)}, {Name: "slow", Samples: samples(5, 5, 6, 5, 5)}, {Name: "gone", Skipped: "no compiler"},
		},
		Comparisons: []experiment.Comparison{{Metric: "qps", Variant: "slow", Base: "base"}, {Metric: "more", Variant: "slow", Base: "base"}, {Metric: "qps", Variant: "gone", Base: "base"}},
		Targets: []experiment.TargetResult{
			{What: "keeps up", Metric: "qps", Variant: "slow", Base: "base", Limit: 0.9, AtLeast: true},
			{What: "half", Metric: "qps", Variant: "slow", Base: "base", Limit: 0.48},
			{What: "not there", Metric: "qps", Variant: "gone", Limit: 1},
		},
	}
	r.Conclude()
	var b bytes.Buffer
	require.NoError(t, printExperiment(&b, r))
	text := b.String()
	for _, want := range []string{"Made up", "5 of 7 rounds", "a fact", "the machine was busy", "ended early: no luck", "noted", "not measured: no compiler"} {
		require.Contains(t, text, want)
	}
	require.Regexp(t, `slow +5\.00 ±0`, text)
	require.Regexp(t, `slow +base +requests/s +0\.50x +0\.45x to 0\.50x +lower`, text)
	require.NotContains(t, text, "MORE", "it is a detail")
	require.Regexp(t, `keeps up +0\.50x +0\.45x to 0\.50x +at least 0\.90x +missed\n`, text)
	require.Regexp(t, `half .*at most 0\.48x +missed \(within noise\)`, text)
	require.Regexp(t, `not there +at most 1\.00 +not measured`, text)
}
