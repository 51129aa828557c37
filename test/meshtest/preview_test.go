package meshtest

import (
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
)

// previewed: every third object of a file is removed.
const previewed = 3

// TestPreviewOfCorpus removes objects of each file, and checks that the preview finds the calls of the file that the
// simulator then decides differently. The simulator's verdicts are checked with real Envoys.
func TestPreviewOfCorpus(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	tried, differ := 0, 0
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := Load(path)
			require.NoError(t, err)
			for i := range f.Objects {
				if i%previewed != 0 {
					continue
				}
				n, d := f.previewWithout(t, i)
				tried, differ = tried+n, differ+d
			}
		})
	}
	if tried > 1000 { // all files
		require.Greater(t, differ, 100, "of %d calls", tried)
	}
	t.Logf("%d calls, %d decided differently", tried, differ)
}

// previewWithout compares the file with the file without an object.
func (f *File) previewWithout(t *testing.T, index int) (tried, differ int) {
	t.Helper()
	without := *f
	without.Objects = slices.Delete(slices.Clone(f.Objects), index, index+1)
	in := preview.Input{Mesh: f.Mesh, Before: preview.Side{Objects: f.Objects}, After: preview.Side{Objects: without.Objects}}
	for _, p := range f.Proxies {
		in.Before.Proxies = append(in.Before.Proxies, p.Model(f.Mesh.Domain))
	}
	in.After.Proxies = in.Before.Proxies
	want := map[string]bool{} // whether each call differs
	for _, c := range f.Calls {
		p, err := f.proxy(c.Proxy)
		require.NoError(t, err)
		if !c.isPlain(p) {
			continue
		}
		call := preview.Call{From: p.Name + "." + p.Namespace, URL: c.Call.URL, Method: c.Call.Method, Headers: c.Call.Headers}
		call.Address, _, err = net.SplitHostPort(c.Call.To)
		require.NoError(t, err)
		before, after := f.result(t, p, &c), without.result(t, p, &c)
		if before == nil || after == nil {
			continue // a configuration that no proxy would get
		}
		in.Calls = append(in.Calls, call)
		want[call.String()+" from "+call.From] = decidesDifferently(before, after)
	}
	if len(in.Calls) == 0 {
		return 0, 0
	}
	r, err := preview.Compute(t.Context(), in)
	require.NoError(t, err)
	got := map[string]bool{}
	for _, d := range r.Differences {
		for _, c := range d.Calls {
			for _, from := range d.From {
				got[c+" from "+from] = true
			}
		}
	}
	for call, differs := range want {
		if differs {
			differ++
			require.True(t, got[call], "without %s, %s differs", f.Objects[index].Metadata().Key, call)
		}
	}
	return len(want), differ
}

// isPlain reports whether a URL says all about a call of an intercepted workload.
func (c *Case) isPlain(p *Proxy) bool {
	call := &c.Call
	if u, err := url.Parse(call.URL); err != nil || call.Host != u.Host || call.SNI != "" && call.SNI != u.Hostname() {
		return false
	}
	return call.URL != "" && p.Type == model.ProxySidecar && p.Interception == model.InterceptRedirect && !call.Inbound && !call.Direct &&
		call.From == "" && !call.Silent && len(call.ALPN) == 0 && call.Principal == "" && call.Dice == 0 && call.At.IsZero()
}

func (f *File) result(t *testing.T, p *Proxy, c *Case) *simulate.Result {
	t.Helper()
	w, err := f.World(p)
	if err != nil {
		return nil
	}
	r, err := w.Call(c.Call.Call)
	if err != nil {
		return nil
	}
	return r
}

// decidesDifferently compares what a caller notices first.
func decidesDifferently(a, b *simulate.Result) bool {
	return a.Status != b.Status || a.Closed != b.Closed || !maps.Equal(a.Clusters, b.Clusters) || !maps.Equal(a.Endpoints, b.Endpoints)
}
