package meshtest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/meshtest/live"
	"github.com/moonsail/moonsail/test/short"
)

// TestCorpusOnEnvoy makes the corpus' calls with a real Envoy, whose results must equal those of the simulator, and
// therefore every want.
func TestCorpusOnEnvoy(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	for _, path := range short.Sample(files) {
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
	for _, c := range f.CallsOf(p) {
		res, err := w.Call(c.Call.Call)
		require.NoError(t, err)
		if live.ByChance(res) {
			continue
		}
		if diff := m.Compare(c.Call.Call, res); len(diff) > 0 {
			t.Errorf("%s: %s\n%s\n--- simulated\n%s", c.Name, c.Call.String(), strings.Join(diff, "\n"), res)
		}
	}
}
