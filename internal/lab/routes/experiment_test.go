package routes

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// small returns an experiment that takes a few seconds.
func small(t *testing.T, layouts ...string) *experiment.Experiment {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	binary, err := envoy.Find("")
	require.NoError(t, err)
	o := QuickOptions()
	o.Envoy, o.Hosts, o.Layouts, o.Phase, o.Rounds, o.Rate, o.Keys = binary.Path, []int{300}, layouts, 150*time.Millisecond, 2, 200, 20*time.Millisecond
	require.NoError(t, o.Check())
	e := New(o)
	e.Budget = 20 * time.Minute
	return e
}

func leftOver(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	require.NoError(t, err)
	return files
}

// stale is a layout with a planted defect: it sends an old route as the new one.
type stale struct{ apart }

func (s stale) changed(m *mesh, i int) ([]item, error) {
	m.versions[i]--
	defer func() { m.versions[i]++ }()
	return s.apart.changed(m, i)
}

// TestTargetsNameTheirLayout checks that each target names its layout.
func TestTargetsNameTheirLayout(t *testing.T) {
	told := map[string]bool{}
	for _, b := range New(QuickOptions()).Targets {
		require.False(t, told[b.What], b.What)
		require.Contains(t, b.What, b.Variant)
		told[b.What] = true
	}
	require.Contains(t, told, "product-auto, 5000: bytes of a change")
}

// TestExperiment checks that the product meets the limit of bytes, that a single route configuration does not, and that
// outdated routes are found.
func TestExperiment(t *testing.T) {
	e := small(t, "rds", "buckets-16")
	b := &bench{o: &Options{Workers: 1, Rate: 200, Conns: 2, Changes: 20, Phase: 150 * time.Millisecond, Envoy: e.Envoy}}
	before := e.Before
	e.Before = func(ctx context.Context) (stop func(), err error) {
		rest, err := before(ctx)
		if err != nil {
			return nil, err
		}
		if b.up, err = startUpstream(ctx); err != nil {
			rest()
			return nil, err
		}
		return func() { b.up.stop(); rest() }, nil
	}
	e.Variants = append(e.Variants, b.variant(Layout{Name: "stale", make: func() layout { return stale{} }}, 60))
	r, err := experiment.Run(t.Context(), e)
	require.NoError(t, err)
	require.Empty(t, leftOver(t))
	require.Equal(t, 2, r.Rounds)
	for _, v := range r.Variants {
		require.Len(t, v.Samples, 2, v.Name)
	}
	good, slow := r.Variant("buckets-16, 300").Summary, r.Variant("rds, 300").Summary
	require.Less(t, good[metricBytes].Max, float64(bytesLimit))
	require.Greater(t, slow[metricBytes].Min, float64(bytesLimit), "a change sends everything")
	require.Zero(t, good[metricWrong].Max+slow[metricWrong].Max)
	require.Positive(t, r.Variant("stale, 60").Summary[metricWrong].Min)
	require.Positive(t, Wrong(r))
	require.Positive(t, r.Variant("key: hash-64").Summary[metricKey].Min)
	recompute(t, r)
}

// recompute computes the numbers of a saved report again, and those of samples that follow from others.
func recompute(t *testing.T, r *experiment.Report) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, r.Save(dir))
	text, err := os.ReadFile(filepath.Join(dir, experiment.JSONFile))
	require.NoError(t, err)
	again := &experiment.Report{}
	require.NoError(t, json.Unmarshal(text, again))
	for i := range again.Variants {
		again.Variants[i].Summary = nil
		for _, s := range again.Variants[i].Samples {
			if _, has := s[metricRatio]; has {
				require.InDelta(t, s[metricChanging99]/s[metricQuiet99], s[metricRatio], 1e-9)
			}
		}
	}
	again.Conclude()
	require.Equal(t, r.Variants, again.Variants)
	require.Equal(t, r.Targets, again.Targets)
}

// TestInterrupted checks that an interrupted run leaves no process and no file.
func TestInterrupted(t *testing.T) {
	e := small(t, "vhds")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e.Progress = func(label string) {
		if strings.HasPrefix(label, "round 1 of ") {
			cancel()
		}
	}
	r, err := experiment.Run(ctx, e)
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, r.Stopped)
	require.Empty(t, leftOver(t))
}
