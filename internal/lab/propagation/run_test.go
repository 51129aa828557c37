package propagation_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(kubetest.Main(m)) }

func options(t *testing.T) propagation.Options {
	t.Helper()
	labtest.Temporary(t)
	o := propagation.QuickOptions()
	o.Programs, o.Rounds, o.Budget = labtest.Programs(t), 2, 20*time.Minute // an upper bound; it takes far less
	o.Meshes = []meshfiles.Shape{{Services: 5, Proxies: 20, Bystanders: 2}}
	return o
}

func TestRun(t *testing.T) {
	o := options(t)
	o.Scenarios = []string{"route", "new-service", "reconnect-storm", "storm"}
	o.StormEvents = 100
	finished := 0
	o.Finished = func(results.Result) { finished++ }
	report, err := propagation.Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, report.Results, 4)
	require.Equal(t, 4, finished)
	for _, r := range report.Results {
		require.Zero(t, r.State.Wrong, "%s: %v", r.Scenario, r.State.First)
		require.Equal(t, 22, r.State.Proxies)
		require.Positive(t, r.State.Decoded)
		require.Positive(t, r.Subject.Last.P50, r.Scenario)
		require.Positive(t, r.Baseline.Last.P50, r.Scenario)
		require.Positive(t, r.Subject.PeakRSS, r.Scenario)
		require.NotEmpty(t, r.Targets)
	}
	route := report.Results[0]
	require.Equal(t, "route", route.Scenario)
	require.Equal(t, 2, route.Subject.Changes)
	require.Equal(t, 2*20, route.Subject.Proxies.N, "each concerned proxy of each change")
	require.InDelta(t, 1, route.Subject.Concerned.Messages, 0)
	require.InDelta(t, 0, route.Subject.Unconcerned.Bytes, 0)
	require.InDelta(t, route.Subject.Concerned.Bytes, route.Baseline.Concerned.Bytes, 16, "the baseline sends as much")
	require.Positive(t, route.Bare.Last.P50)
	for _, side := range []*results.Side{&route.Subject, route.Baseline, route.Bare} {
		require.Equal(t, 2, side.Heard.N, "each server says when it had read the last ACK")
		for _, s := range side.Samples {
			require.Greater(t, s.Heard, s.Last/2)
			require.Less(t, s.Heard, s.Last+10_000)
		}
	}
	recompute(t, report)
	require.Empty(t, labtest.LeftOver(t))
}

// TestEveryScenario runs the scenarios that no other test runs, over TLS. Each must end with the right state.
func TestEveryScenario(t *testing.T) {
	o := options(t)
	o.Scenarios = []string{"removed-service", "destination-rule", "churn", "stalled", "growth", "memory", "locks"}
	o.Meshes = []meshfiles.Shape{{Services: 100, Proxies: 20, Bystanders: 2}} // enough to fill a socket
	o.TLS, o.ChurnEvents, o.ChurnSpeed, o.StormEvents = true, 6, 50, 100
	o.Growth, o.GrowthProxy, o.Memory, o.MemoryProxy = []int{5, 10}, 5, []int{5, 10}, 10
	report, err := propagation.Run(t.Context(), o)
	require.NoError(t, err)
	require.Empty(t, report.Notes)
	var names []string
	for _, r := range report.Results {
		names = append(names, r.Scenario)
		require.NotNil(t, r.State, r.Scenario)
		require.Zero(t, r.State.Wrong, "%s: %v", r.Scenario, r.State.First)
		require.Positive(t, r.State.Decoded, r.Scenario)
		require.NotEmpty(t, r.Targets, r.Scenario)
		require.Positive(t, r.Subject.Last.P50, r.Scenario)
		require.Positive(t, r.Subject.PeakRSS, r.Scenario)
		if r.Scenario == "churn" {
			require.Positive(t, r.Baseline.CPU.P50)
			require.Positive(t, r.Bare.Last.P50, "the limit is beside it")
		}
	}
	require.ElementsMatch(t, o.Scenarios, names)
	dir := t.TempDir()
	require.NoError(t, report.Save(dir))
	for _, name := range []string{"report.html", "locks-mutex.pb.gz", "locks-block.pb.gz"} {
		require.FileExists(t, filepath.Join(dir, name))
	}
	require.Empty(t, labtest.LeftOver(t))
}

// TestScopedRoutes checks that proxies whose routes come in route shards, by scopes, receive changes and end with the
// right state.
func TestScopedRoutes(t *testing.T) {
	labtest.Long(t)
	o := options(t)
	o.Scenarios, o.ServeFlags = []string{"route", "new-service", "reconnect-storm"}, []string{"--route-strategy=scoped"}
	const services = 256
	o.Meshes = []meshfiles.Shape{{Services: services, Proxies: 20, Bystanders: 2}}
	report, err := propagation.Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, report.Results, 3)
	for _, r := range report.Results {
		require.Zero(t, r.State.Wrong, "%s: %v", r.Scenario, r.State.First)
		require.Positive(t, r.Subject.Last.P50, r.Scenario)
		// A cluster, endpoints, a virtual host of names and one of the address; 32 scopes with route configurations.
		require.GreaterOrEqual(t, r.State.Decoded, services*4+32*2, r.Scenario)
	}
	require.InDelta(t, 1, report.Results[0].Subject.Concerned.Messages, 0)
	require.Empty(t, labtest.LeftOver(t))
}

// TestSlowControlPlaneMissesTarget checks that a control plane that delays each change by 300 ms certainly misses its target.
// The target is a ratio to the baseline, which on a busy machine takes tens of milliseconds.
func TestSlowControlPlaneMissesTarget(t *testing.T) {
	t.Setenv("PILOT_DEBOUNCE_AFTER", "300ms")
	o := options(t)
	o.Scenarios, o.Rounds = []string{"endpoint"}, 5
	report, err := propagation.Run(t.Context(), o)
	require.NoError(t, err)
	target := report.Results[0].Targets[0]
	require.False(t, target.Met)
	require.Equal(t, experiment.Missed, target.Verdict, "%+v", target)
	for _, s := range report.Results[0].Subject.Samples {
		require.Greater(t, s.Heard, 300.0, "the control plane does not know of the ACK earlier")
	}
	require.Positive(t, report.Machine.CPUs)
}

// TestBudget checks that a run leaves out what exceeds its budget, and that the report states it.
func TestBudget(t *testing.T) {
	o := options(t)
	o.Scenarios = []string{"connect-storm", "endpoint"}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	o.Finished = func(results.Result) { cancel(propagation.ErrBudget) }
	report, err := propagation.Run(ctx, o)
	require.NoError(t, err)
	require.Len(t, report.Results, 1)
	require.Contains(t, report.Notes[0], "the scenarios after connect-storm on mesh 5x20 were not measured")
	require.Empty(t, labtest.LeftOver(t))
}

// recompute computes the numbers of a report again from its saved samples.
func recompute(t *testing.T, r *results.Report) {
	t.Helper()
	text, err := json.Marshal(r)
	require.NoError(t, err)
	var saved results.Report
	require.NoError(t, json.Unmarshal(text, &saved))
	for i, x := range saved.Results {
		var last, heard, cpu, ratios []float64
		for j, s := range x.Subject.Samples {
			last, cpu = append(last, s.Last), append(cpu, s.CPU)
			if s.Heard > 0 {
				heard = append(heard, s.Heard)
			}
			ratios = append(ratios, s.Last/x.Baseline.Samples[min(j, len(x.Baseline.Samples)-1)].Last)
		}
		require.Equal(t, results.SpreadOf(last), r.Results[i].Subject.Last, x.Scenario)
		require.Equal(t, results.SpreadOf(heard), r.Results[i].Subject.Heard, x.Scenario)
		require.Equal(t, results.SpreadOf(cpu), r.Results[i].Subject.CPU, x.Scenario)
		if x.Targets[0].Verdict != "" {
			require.InDelta(t, results.Median(ratios), r.Results[i].Targets[0].Value, 1e-9, x.Scenario)
		}
	}
}

// A proxy that has missed a change must be found by the comparison of final states.
func TestStaleProxyIsFound(t *testing.T) {
	o := options(t)
	stale, state, err := propagation.StaleState(t.Context(), o, filepath.Join(t.TempDir(), "lab"), o.Meshes[0])
	require.NoError(t, err)
	require.Equal(t, 1, state.Wrong, "%v", state.First)
	require.Contains(t, state.First[0], stale+": EDS outbound|80||svc-0000")
	require.Contains(t, state.First[0], "is stale")
}

// An interrupted run returns an error and its results so far, and leaves nothing behind.
func TestRunInterrupted(t *testing.T) {
	o := options(t)
	o.Scenarios = []string{"endpoint", "route"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Finished = func(results.Result) { cancel() }
	report, err := propagation.Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, report.Results, 1)
	require.NotEmpty(t, report.Stopped)
	require.Empty(t, labtest.LeftOver(t))
}

// The error of a control plane that cannot start contains its last output.
func TestRunFailsToStart(t *testing.T) {
	o := options(t)
	o.Scenarios = []string{"endpoint"}
	o.ServeFlags = []string{"--route-strategy=none"}
	_, err := propagation.Run(t.Context(), o)
	require.ErrorContains(t, err, "the control plane: ended (exit status 2)")
	require.ErrorContains(t, err, `--route-strategy "none": unknown strategy`)
	require.Empty(t, labtest.LeftOver(t))
}

// A control plane that serves outdated routes and rules to all proxies must be found by the comparison with the source.
func TestLateControlPlaneIsFound(t *testing.T) {
	o := options(t)
	state, err := propagation.LateState(t.Context(), o, filepath.Join(t.TempDir(), "lab"), o.Meshes[0])
	require.NoError(t, err)
	require.Equal(t, 2, state.Wrong, "%v", state.First)
	first := slices.Sorted(slices.Values(state.First))
	require.Contains(t, first[0], "connections to svc-00001, the proxy's cluster 4294967295")
	require.Contains(t, first[1], "VirtualService of svc-00000 sets mark-")
}
