package meshtest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/test/meshtest/live"
)

// TestCorpusOnEnvoy makes the corpus' calls with a real Envoy, whose results must equal those of the simulator, and
// therefore every want.
func TestCorpusOnEnvoy(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	for _, path := range Sample(files) {
		f, err := Load(path)
		require.NoError(t, err)
		t.Run(f.Name, f.onEnvoys)
	}
}

func (f *File) onEnvoys(t *testing.T) {
	t.Parallel() // they wait for Envoy, and for listeners that wait for clients
	for _, p := range f.Proxies {
		f.onEnvoy(t, p)
	}
}

func (f *File) onEnvoy(t *testing.T, p *Proxy) {
	w, err := f.World(p)
	require.NoError(t, err)
	if err := live.Validate(w, t.TempDir()); err != nil {
		t.Errorf("proxy %s: Envoy refuses its resources: %v", p.Name, err)
	}
	m, err := live.Start(w, t.TempDir())
	require.NoError(t, err)
	defer m.Stop()
	for _, c := range f.Calls {
		if owner, err := f.proxy(c.Proxy); err != nil || owner != p {
			continue
		}
		res, err := w.Call(c.Call.Call)
		require.NoError(t, err)
		if byChance(res) {
			continue
		}
		if diff := callOften(m, c.Call.Call, res); len(diff) > 0 {
			t.Errorf("%s: %s\n%s\n--- simulated\n%s", c.Name, c.Call.String(), strings.Join(diff, "\n"), res)
		}
	}
}

// callOften calls until each cluster with a good share must have received a call. In 100 calls, a cluster with 20
// percent is missed once in five billion runs.
func callOften(m *live.Mesh, c simulate.Call, want *simulate.Result) []string {
	met := map[string]bool{}
	for range map[bool]int{false: 1, true: 100}[len(want.Clusters) > 1] {
		got, err := m.Call(c)
		if err != nil {
			return []string{err.Error()}
		}
		if diff := live.Differences(want, got); len(diff) > 0 {
			return diff
		}
		if got.Seen != nil {
			met[got.Seen.Cluster] = true
		}
	}
	for cluster, share := range want.Clusters {
		if share >= 20 && want.Status == 0 && want.Closed == "" && !met[cluster] {
			return []string{fmt.Sprintf("cluster %s should have had %v percent, and had none", cluster, share)}
		}
	}
	return nil
}

// byChance reports whether a single call cannot show that the result is right, or takes too long.
func byChance(r *simulate.Result) bool {
	if r.Status == 0 && r.Clusters[ir.UnknownService] > 0 {
		return true
	}
	return r.Fault != nil && (r.Fault.DelayPercent > 0 || r.Fault.AbortPercent > 0 && r.Fault.AbortPercent < 100)
}
