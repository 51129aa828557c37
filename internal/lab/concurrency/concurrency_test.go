package concurrency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/lab/concurrency"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) {
	labtest.Main(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

// small returns an experiment that takes a few seconds.
func small(t *testing.T) *experiment.Experiment {
	t.Helper()
	labtest.Temporary(t)
	o := concurrency.QuickOptions()
	o.Workers, o.Loads, o.Phase, o.Rounds = []int{1, 2}, []int{20, 60}, 200*time.Millisecond, 3
	o.Pair.Programs, o.Pair.Envoy = labtest.Sidecars(t)
	require.NoError(t, o.Check())
	e := concurrency.New(o)
	e.Budget = 20 * time.Minute
	return e
}

// TestConcurrency checks that the report has the CPU time of each thread, that all numbers follow from the samples, and
// that there is a recommendation.
func TestConcurrency(t *testing.T) {
	r, err := experiment.Run(t.Context(), small(t))
	require.NoError(t, err)
	require.Empty(t, labtest.LeftOver(t))
	require.Len(t, r.Variants, 6)
	notes := strings.Join(r.Notes, "\n")
	require.Contains(t, notes, "100 % is ")
	require.Regexp(t, `Recommended: concurrency [12]\. `, notes)
	require.Contains(t, notes, "CPUs, which the load and the application use too")
	require.Len(t, r.Charts, 2)
	require.Len(t, r.Charts[1].Lines, 3, "the main thread and two workers")

	dir := t.TempDir()
	require.NoError(t, r.Save(dir))
	text, err := os.ReadFile(filepath.Join(dir, experiment.JSONFile))
	require.NoError(t, err)
	saved := &experiment.Report{}
	require.NoError(t, json.Unmarshal(text, saved))
	for i := range saved.Variants {
		recompute(t, saved, &saved.Variants[i])
	}
}

// recompute computes the numbers of a variant again from its samples.
func recompute(t *testing.T, r *experiment.Report, v *experiment.Result) {
	t.Helper()
	workers := 1
	if strings.HasPrefix(v.Name, "2 workers") {
		workers = 2
	}
	require.Len(t, v.Samples, r.Rounds, v.Name)
	for _, s := range v.Samples {
		sum, most := 0.0, 0.0
		for i := range workers {
			n, ok := s[fmt.Sprintf("worker_%d", i)]
			require.True(t, ok, v.Name)
			sum, most = sum+n, max(most, n)
		}
		require.NotContains(t, s, fmt.Sprintf("worker_%d", workers), "there is no such worker")
		require.Positive(t, sum)
		require.InDelta(t, most, s["busiest"], 1e-9)
		require.InDelta(t, sum/float64(workers), s["mean"], 1e-9)
		require.Equal(t, strings.HasSuffix(v.Name, "%"), s["offered"] > 0, v.Name)
		require.GreaterOrEqual(t, s["p99_ms"], s["p50_ms"])
		// The CPU time of Envoy is at least that of its workers.
		require.GreaterOrEqual(t, s["us_a_request"]*s["qps"]/1e4+1e-6, sum, v.Name)
	}
	for metric, s := range v.Summary {
		var all []float64
		for _, sample := range v.Samples {
			all = append(all, sample[metric])
		}
		slices.Sort(all)
		require.InDelta(t, all[1], s.Median, 1e-9, "%s of %s, of three", metric, v.Name)
		require.InDelta(t, all[0], s.Min, 1e-9)
		require.InDelta(t, all[2], s.Max, 1e-9)
	}
}

// TestInterrupted checks that an interrupted run leaves no process and no file.
func TestInterrupted(t *testing.T) {
	e := small(t)
	ctx, cancel := context.WithCancel(t.Context())
	e.Progress = func(label string) {
		if strings.HasPrefix(label, "round 1 of ") {
			cancel()
		}
	}
	r, err := experiment.Run(ctx, e)
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, r.Stopped)
	require.Empty(t, labtest.LeftOver(t))
}
