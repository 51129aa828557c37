package propagation_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/rollout"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/labtest"
)

// trial returns options of a small run on a real API server.
func trial(t *testing.T, scenario string) propagation.Options {
	t.Helper()
	cluster := kubetest.Shared(t) // before temporary files are counted
	o := options(t)
	o.Scenarios, o.Source, o.Kubeconfig = []string{scenario}, session.SourceKube, cluster.Kubeconfig()
	o.Rollout = rollout.Size{Deployments: 2, Pods: 4, Proxies: 3}
	o.Airbnb = rollout.Airbnb{Size: o.Rollout, Time: 600 * time.Millisecond, Speed: 50}
	o.TrialRounds = 2
	return o
}

// TestExpediaShowsADefect checks that the report shows a control plane that delays changes by 700 ms. Proxies know dead
// pods for that long, the target is missed, and the settings without the delay are better.
func TestExpediaShowsADefect(t *testing.T) {
	o := trial(t, "expedia")
	o.Defect = true
	r, err := propagation.Run(t.Context(), o)
	require.NoError(t, err)
	require.Zero(t, r.Wrong(), "%+v", r.Results[0].State)
	report := r.Results[0].Report
	require.Equal(t, 2, report.Rounds)
	require.Len(t, report.Variants, 3)
	for _, v := range report.Variants {
		for _, s := range v.Samples {
			require.InDelta(t, 4+2, s["dead_n"], 0, "%s: all pods of one Deployment, and half of the other's", v.Name)
			require.Zero(t, s["dead_left"])
			require.Contains(t, s, "wait_EndpointSlice_ms")
			require.Contains(t, s, "work_Pod_ms")
			require.Positive(t, s["cpu_s"])
		}
	}
	slow := report.Variant(propagation.DefaultSetting)
	require.Greater(t, slow.Summary["stage_store_p50_ms"].Min, 500.0)
	require.Greater(t, slow.Summary["dead_p99_ms"].Min, 300.0, "a pod that goes while others wait waits less")
	for i := range report.Comparisons {
		// A debounce also waits, and for how long depends on other changes.
		if c := &report.Comparisons[i]; c.Metric == "change_p50_ms" && !strings.HasPrefix(c.Variant, "debounce") {
			require.Less(t, c.High, 0.7, "%s is quicker than the defect", c.Variant)
		}
	}
	target := report.Targets[len(report.Targets)-1]
	require.Equal(t, "dead_p99_ms", target.Metric)
	require.False(t, target.Met)
	require.Empty(t, labtest.LeftOver(t))
	require.GreaterOrEqual(t, len(report.Charts), 4, "queues by kind, and dead pods over time")
	saved(t, r)
}

// saved computes the numbers of a saved report again from its samples.
func saved(t *testing.T, r *results.Report) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, r.Save(dir))
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	require.NoError(t, err)
	var again results.Report
	require.NoError(t, json.Unmarshal(text, &again))
	for i, x := range again.Results {
		if x.Report != nil {
			for j := range x.Report.Variants {
				x.Report.Variants[j].Summary = nil
			}
			x.Report.Conclude()
			require.Equal(t, r.Results[i].Report.Variants, x.Report.Variants)
			require.Equal(t, r.Results[i].Report.Comparisons, x.Report.Comparisons)
			require.Equal(t, r.Results[i].Report.Targets, x.Report.Targets)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	require.NotRegexp(t, `(src|href)=`, string(page), "it needs no other file")
}

// beside starts another control plane, of which the lab knows only the address.
func beside(t *testing.T, o propagation.Options) string {
	t.Helper()
	p, err := child.Start(t.Context(), "the one beside", append(slices.Clone(o.Programs.Moonsail), "serve", "--log-format", "json",
		"--xds-plaintext-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--kubeconfig", o.Kubeconfig)...)
	require.NoError(t, err)
	t.Cleanup(func() { p.Stop(5 * time.Second) })
	return p.Addr()
}

// TestAirbnb checks that routes and restarts are followed under each setting, that the debounce shows, and that another
// control plane is measured in turn although the lab knows only its address.
func TestAirbnb(t *testing.T) {
	labtest.Long(t)
	o := trial(t, "airbnb")
	const debounce = "debounce 1 s, at most 1 s"
	o.Only(propagation.DefaultSetting, debounce)
	o.TrialRounds = 1
	o.Peer = &session.Peer{Name: "other", Address: beside(t, o)}
	r, err := propagation.Run(t.Context(), o)
	require.NoError(t, err)
	report := r.Results[0].Report
	require.Len(t, report.Variants, 3)
	other := report.Variant("other").Summary
	require.Positive(t, other["route_n"].Median)
	require.Positive(t, other["dead_n"].Median)
	require.NotContains(t, other, "change_p50_ms", "it is not asked for its pages")
	require.NotContains(t, other, "cpu_s", "its process is not known")
	fast, slow := report.Variant(propagation.DefaultSetting).Summary, report.Variant(debounce).Summary
	require.Greater(t, slow["route_p50_ms"].Median, 500.0)
	require.Less(t, fast["route_p50_ms"].Median, slow["route_p50_ms"].Median)
	require.Empty(t, labtest.LeftOver(t))
}

// TestTrialInterrupted checks that the report has the complete rounds, and that nothing is left, in the API server
// either.
func TestTrialInterrupted(t *testing.T) {
	labtest.Long(t)
	o := trial(t, "expedia")
	o.Only(propagation.DefaultSetting)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Progress = func(label string) {
		if strings.HasPrefix(label, "round 2 ") {
			cancel()
		}
	}
	r, err := propagation.Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, r.Results[0].Report.Rounds)
	require.NotEmpty(t, r.Results[0].Report.Stopped)
	require.Empty(t, labtest.LeftOver(t))
	again := trial(t, "expedia")
	again.Only(propagation.DefaultSetting)
	again.TrialRounds = 1
	r, err = propagation.Run(t.Context(), again)
	require.NoError(t, err, "it refuses an API server where something is left")
	require.Equal(t, 1, r.Results[0].Report.Rounds)
}

// TestGrowthInAnAPIServer checks that growth uses one mesh of an API server, which grows, and that final states are
// right at each size. The baseline must wait for the shadows of single changes, and for each event of a storm.
func TestGrowthInAnAPIServer(t *testing.T) {
	o := trial(t, "growth")
	o.Scenarios, o.StormEvents = []string{"new-service", "storm", "growth"}, 40
	o.Growth, o.GrowthProxy = []int{6, 12, 20_000}, 4
	shadows := countShadows(t)
	r, err := propagation.Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, r.Results, 3)
	require.Zero(t, r.Wrong(), "%+v", r.Results)
	require.Equal(t, 3*40, shadows(), "as many shadows as events, three times")
	require.Contains(t, r.Results[1].Note, "the baseline waits for each event of the API server")
	g := r.Results[2]
	require.Len(t, g.Series, 2, "20,000 services are too many")
	require.Equal(t, []int{6, 12}, []int{g.Series[0].Services, g.Series[1].Services})
	require.Equal(t, 12, g.Mesh.Services)
	require.Equal(t, 2*4, g.State.Proxies)
	require.Contains(t, g.Note, "one after the other")
	require.Empty(t, labtest.LeftOver(t))
}

// countShadows counts the changes of shadow EndpointSlices until changed is called.
func countShadows(t *testing.T) (changed func() int) {
	t.Helper()
	w, err := kubetest.Shared(t).Client.DiscoveryV1().EndpointSlices(meshfiles.Aside).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	count := make(chan int, 1)
	go func() {
		n := 0
		for e := range w.ResultChan() {
			if e.Type == watch.Modified {
				n++
			}
		}
		count <- n
	}()
	return func() int {
		w.Stop()
		return <-count
	}
}
