package balance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/lab/balance"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) {
	labtest.Main(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

// small returns an experiment that takes a few seconds.
func small(t *testing.T, connections ...int) *experiment.Experiment {
	t.Helper()
	labtest.Temporary(t)
	o := balance.QuickOptions()
	o.Connections, o.Phase, o.Rounds = connections, 100*time.Millisecond, 2
	o.Pair.Programs, o.Pair.Envoy = labtest.Sidecars(t)
	require.NoError(t, o.Check())
	e := balance.New(o)
	e.Budget = 20 * time.Minute
	return e
}

// TestBalance checks that connections are even with the generated configuration. Both planted defects must show in the
// statistics, the verdicts, and the output of 'moonsail proxies --workers'.
func TestBalance(t *testing.T) {
	const n = 64
	r, err := experiment.Run(t.Context(), small(t, n))
	require.NoError(t, err)
	require.Empty(t, labtest.LeftOver(t))
	require.Len(t, r.Variants, 6)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		require.InDelta(t, 1, uneven(t, r, "moonsail", protocol, n).Max, 0, protocol)
		require.Greater(t, uneven(t, r, "kernel", protocol, n).Max, 1.0, protocol)
		require.Greater(t, uneven(t, r, "one socket", protocol, n).Median, 1.1, protocol)
	}
	require.Equal(t, [2]int{2, 2}, r.Held())
	for i := range r.Targets { // the same target, missed with the defect
		r.Targets[i].Variant = strings.Replace(r.Targets[i].Variant, "moonsail", "one socket", 1)
	}
	r.Conclude()
	require.Equal(t, [2]int{0, 2}, r.Held())

	recompute(t, r, n)
	require.Len(t, r.Charts, 2)
	dir := t.TempDir()
	require.NoError(t, r.Save(dir))
	text, err := os.ReadFile(filepath.Join(dir, experiment.JSONFile))
	require.NoError(t, err)
	saved := &experiment.Report{}
	require.NoError(t, json.Unmarshal(text, saved))
	recompute(t, saved, n)
}

func uneven(t *testing.T, r *experiment.Report, mode, protocol string, n int) experiment.Summary {
	t.Helper()
	v := r.Variant(fmt.Sprintf("%s, %s, %d", mode, protocol, n))
	require.NotNil(t, v)
	return v.Summary["max_to_mean"]
}

// recompute computes the numbers of a report again from the connections of each worker.
func recompute(t *testing.T, r *experiment.Report, connections int) {
	t.Helper()
	for _, v := range r.Variants {
		require.Len(t, v.Samples, r.Rounds, v.Name)
		var all []float64
		for _, s := range v.Samples {
			sum, most, idle := 0.0, 0.0, 0.0
			for i := range 4 {
				n, ok := s[fmt.Sprintf("worker_%d", i)]
				require.True(t, ok)
				if sum, most = sum+n, max(most, n); n == 0 {
					idle++
				}
			}
			require.InDelta(t, connections, sum, 0, v.Name)
			require.InDelta(t, 4*most/sum, s["max_to_mean"], 1e-9)
			require.InDelta(t, idle, s["idle"], 0)
			require.Equal(t, most >= 2*sum/4, s["noticed"] == 1, "%s: %v", v.Name, s)
			require.Positive(t, s["qps"])
			require.Positive(t, s["p99_ms"])
			require.GreaterOrEqual(t, s["cpu_max_to_mean"], 1.0)
			all = append(all, s["max_to_mean"])
		}
		require.InDelta(t, (all[0]+all[1])/2, v.Summary["max_to_mean"].Median, 1e-9, "of two")
	}
}

// TestInterrupted checks that an interrupted run leaves no process and no file.
func TestInterrupted(t *testing.T) {
	e := small(t, 8)
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

func TestCheck(t *testing.T) {
	good := balance.DefaultOptions()
	require.NoError(t, good.Check())
	for want, change := range map[string]func(*balance.Options){
		"--workers 1: use 2 to":                     func(o *balance.Options) { o.Workers = 1 },
		"name at least one number":                  func(o *balance.Options) { o.Connections = nil },
		"3: use at least the number of workers, 4,": func(o *balance.Options) { o.Connections = []int{3} },
		"5000: use at least":                        func(o *balance.Options) { o.Connections = []int{5000} },
		"numbers in ascending order":                func(o *balance.Options) { o.Connections = []int{8, 8} },
	} {
		o := good
		change(&o)
		require.ErrorContains(t, o.Check(), want)
	}
	e := balance.New(good)
	names := map[string]bool{}
	for _, v := range e.Variants {
		names[v.Name] = true
	}
	require.Len(t, slices.Collect(maps.Keys(names)), len(e.Variants), "names are unique")
}
