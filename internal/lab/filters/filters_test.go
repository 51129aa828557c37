package filters_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/filters"
	"github.com/moonsail/moonsail/internal/lab/pair"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// watched looks at a pair before it is stopped.
type watched struct {
	*pair.Subject
	t    *testing.T
	look func()
}

// Stop implements experiment.Subject. The pair is paused.
func (w *watched) Stop() {
	require.NoError(w.t, w.Resume(w.t.Context()))
	w.look()
	w.Subject.Stop()
}

// stats returns the sum of counters of a sidecar's Envoy.
func stats(t *testing.T, s *pair.Sidecar, filter string) (sum uint64) {
	t.Helper()
	admin := envoy.NewAdmin(s.Admin)
	defer admin.Close()
	all, err := admin.Stats(t.Context(), filter)
	require.NoError(t, err)
	for _, n := range all {
		sum += n
	}
	return sum
}

// TestRun runs all variants with real sidecars, and checks that each has the configuration that its name states.
func TestRun(t *testing.T) {
	labtest.Long(t)
	labtest.Temporary(t)
	o := filters.DefaultOptions()
	o.Programs, o.Envoy = labtest.Sidecars(t)
	o.Quick, o.Connections, o.Rate = true, 4, 50
	e := filters.New(o)
	e.Rounds, e.Budget = 1, 20*time.Minute // an upper bound; it takes far less
	native, wasm := map[string]bool{}, map[string]bool{}
	for i := range e.Variants {
		v := &e.Variants[i]
		start := v.Start
		v.Start = func(ctx context.Context) (experiment.Subject, error) {
			s, err := start(ctx)
			if err != nil {
				return nil, err
			}
			p := s.(*pair.Subject)
			p.Phases.Closed, p.Phases.Fixed = 200*time.Millisecond, 200*time.Millisecond
			return &watched{p, t, func() {
				for _, x := range p.Sidecars() {
					native[v.Name] = stats(t, x, "istio.*requests_total") > 0
					wasm[v.Name] = stats(t, x, "labwasm_requests") > 0
				}
			}}, nil
		}
	}
	r, err := experiment.Run(t.Context(), e)
	require.NoError(t, err)
	for _, v := range r.Variants {
		require.Empty(t, v.Skipped, v.Name)
		require.Len(t, v.Samples, 1, v.Name)
		require.Zero(t, v.Samples[0]["failed"], v.Name)
	}
	for _, name := range []string{filters.NoneBoth, filters.Native, filters.WASM, filters.Lua, filters.LogText, filters.LogJSON} {
		require.Equal(t, name == filters.Native, native[name], name)
		require.Equal(t, name == filters.WASM, wasm[name], name)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "moonsail*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestNoToolchain checks that without a compiler the row states the reason, and the other variants are measured.
func TestNoToolchain(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	e := filters.New(filters.DefaultOptions())
	for _, v := range e.Variants {
		if v.Name == filters.WASM {
			require.Contains(t, v.Skip, "no Go toolchain")
		} else {
			require.Empty(t, v.Skip)
		}
	}
}

func TestBuildFails(t *testing.T) {
	_, err := filters.Build(t.Context(), "false", t.TempDir())
	require.ErrorContains(t, err, "building the WASM filter with false")
}

func TestCheck(t *testing.T) {
	for _, change := range []func(*filters.Options){
		func(o *filters.Options) { o.Concurrency = -1 }, func(o *filters.Options) { o.Connections = 0 }, func(o *filters.Options) { o.Rate = 1 },
	} {
		o := filters.DefaultOptions()
		require.NoError(t, o.Check())
		change(&o)
		require.Error(t, o.Check())
	}
}
