package meshtest

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/meshtest/live"
	"github.com/moonsail/moonsail/test/short"
)

// previewed: every third object of a file is removed.
const previewed = 3

// TestPreviewOfCorpus removes objects of each file, and checks that the preview finds the calls of the file that the
// simulator then decides differently. The simulator's verdicts are checked with real Envoys.
func TestPreviewOfCorpus(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	tried, differ := 0, 0
	for _, path := range short.Sample(paths) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := Load(path)
			require.NoError(t, err)
			before := f.decider()
			for i := 0; i < len(f.Objects); i += previewed {
				n, d := f.previewWithout(t, i, before)
				tried, differ = tried+n, differ+d
			}
		})
	}
	if !testing.Short() {
		require.Greater(t, differ, 100, "of %d calls", tried)
	}
	t.Logf("%d calls, %d decided differently", tried, differ)
}

// previewWithout compares the file with the file without an object.
func (f *File) previewWithout(t *testing.T, index int, before decider) (tried, differ int) {
	t.Helper()
	calls, _ := f.preview(t, index, before)
	for _, c := range calls {
		if decidesDifferently(c.before, c.after) {
			differ++
			require.True(t, c.differs, "without %s, %s differs", f.Objects[index].Metadata().Key, c.Name)
		}
	}
	return len(calls), differ
}

// previewedCall is a call of a file, with what the simulator decides with and without an object.
type previewedCall struct {
	*Case
	proxy         *Proxy
	before, after *simulate.Result
	differs       bool // by the preview
}

// preview returns the preview's verdicts about the plain calls of a file if an object is removed, and the file without it.
// The decider is that of the whole file.
func (f *File) preview(t *testing.T, index int, decide decider) ([]previewedCall, *File) {
	t.Helper()
	without := *f
	without.Objects = slices.Delete(slices.Clone(f.Objects), index, index+1)
	decideWithout := without.decider()
	in := preview.Input{Mesh: f.Mesh, Before: preview.Side{Objects: f.Objects}, After: preview.Side{Objects: without.Objects}}
	for _, p := range f.Proxies {
		in.Before.Proxies = append(in.Before.Proxies, p.Model(f.Mesh.Domain))
	}
	in.After.Proxies = in.Before.Proxies
	var out []previewedCall
	for i := range f.Calls {
		c := &f.Calls[i]
		p, err := f.proxy(c.Proxy)
		require.NoError(t, err)
		if !c.isPlain(p) {
			continue
		}
		call := preview.Call{From: p.Name + "." + p.Namespace, URL: c.Call.URL, Method: c.Call.Method, Headers: c.Call.Headers}
		call.Address, _, err = net.SplitHostPort(c.Call.To)
		require.NoError(t, err)
		before, after := decide(p, c), decideWithout(p, c)
		if before == nil || after == nil {
			continue // a configuration that no proxy would get
		}
		in.Calls = append(in.Calls, call)
		out = append(out, previewedCall{Case: c, proxy: p, before: before, after: after})
	}
	if len(in.Calls) == 0 {
		return nil, &without
	}
	r, err := preview.Compute(t.Context(), in)
	require.NoError(t, err)
	got := map[string]bool{}
	for _, d := range r.Differences {
		for _, c := range d.Calls {
			for _, from := range d.From {
				got[c.String()+" from "+from] = true
			}
		}
	}
	for i := range out {
		out[i].differs = got[in.Calls[i].String()+" from "+in.Calls[i].From]
	}
	return out, &without
}

// everyChange makes TestPreviewOnEnvoys try every object and proxy of a file, and not only the first with a call that notices.
const everyChange = "MOONSAIL_EVERY_CHANGE"

// TestPreviewOnEnvoys makes calls with real Envoys before and after changes, the removals of objects that some call notices. The
// answers must differ exactly where the preview and the simulator expect it.
func TestPreviewOnEnvoys(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	every := os.Getenv(everyChange) != "" && !testing.Short()
	var changes, differ atomic.Int32
	t.Run("files", func(t *testing.T) {
		for _, path := range short.Sample(paths) {
			f, err := Load(path)
			require.NoError(t, err)
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				whole := &onEnvoys{file: f, answers: map[*Case]*live.Answer{}}
				before := f.decider()
				for i := range f.Objects {
					calls, without := f.preview(t, i, before)
					for _, p := range f.Proxies {
						if !slices.ContainsFunc(calls, func(c previewedCall) bool { return c.proxy == p && c.isNoticed() }) {
							continue
						}
						changes.Add(1)
						differ.Add(int32(whole.compare(t, without, f.Objects[i].Metadata().Key, calls, p)))
						if !every {
							return
						}
					}
				}
			})
		}
	})
	t.Logf("%d changes, %d calls answered differently", changes.Load(), differ.Load())
	if !testing.Short() {
		require.Greater(t, differ.Load(), int32(50))
	}
}

// isNoticed reports whether the caller's proxy answers a call differently, or sends it elsewhere.
func (c previewedCall) isNoticed() bool {
	a, b := c.before, c.after
	return c.isCertain() && (a.Status != b.Status || (a.Closed == "") != (b.Closed == "") || a.Closed == "" && a.Status == 0 && !maps.Equal(a.Clusters, b.Clusters))
}

// isCertain reports whether one call shows the result.
func (c previewedCall) isCertain() bool {
	return len(c.before.Clusters) <= 1 && len(c.after.Clusters) <= 1 && !live.ByChance(c.before) && !live.ByChance(c.after)
}

// onEnvoys has the answers of real Envoys to the calls of a file.
type onEnvoys struct {
	file    *File
	answers map[*Case]*live.Answer
}

// ask makes the certain calls of a proxy with the whole file, once.
func (e *onEnvoys) ask(t *testing.T, calls []previewedCall, p *Proxy) {
	t.Helper()
	calls = slices.DeleteFunc(slices.Clone(calls), func(c previewedCall) bool { return c.proxy != p || !c.isCertain() || e.answers[c.Case] != nil })
	if len(calls) > 0 {
		maps.Copy(e.answers, answersOf(t, e.file, calls, p))
	}
}

// answersOf makes the calls of a proxy with a file.
func answersOf(t *testing.T, f *File, calls []previewedCall, p *Proxy) map[*Case]*live.Answer {
	t.Helper()
	w, err := f.World(p)
	require.NoError(t, err)
	m, err := live.Start(w, t.TempDir())
	require.NoError(t, err)
	defer m.Stop()
	out := map[*Case]*live.Answer{}
	for _, c := range calls {
		if c.proxy != p || !c.isCertain() {
			continue
		}
		out[c.Case], err = m.Call(c.Call.Call)
		require.NoError(t, err, c.Name)
	}
	return out
}

// compare makes the calls of a proxy with the file and without an object, and returns how many were answered differently.
func (e *onEnvoys) compare(t *testing.T, without *File, removed model.Key, calls []previewedCall, p *Proxy) (differ int) {
	t.Helper()
	e.ask(t, calls, p)
	after := answersOf(t, without, calls, p)
	for i := range calls {
		c := &calls[i]
		a, b := e.answers[c.Case], after[c.Case]
		if c.proxy != p || !c.isCertain() || a == nil {
			continue
		}
		about := fmt.Sprintf("%s of %s, without %s", c.Name, p.Name, removed)
		require.Empty(t, live.Differences(c.before, a), "%s: before", about)
		require.Empty(t, live.Differences(c.after, b), "%s: after", about)
		different := noticed(a) != noticed(b)
		require.Equal(t, c.isNoticed(), different, "%s: %s, then %s", about, noticed(a), noticed(b))
		if different {
			differ++
			require.True(t, c.differs, "%s: the preview does not report it", about)
		}
	}
	return differ
}

// noticed is what a caller notices of an answer first.
func noticed(a *live.Answer) string {
	switch {
	case a.Closed:
		return "closed"
	case a.Seen != nil:
		return "cluster " + a.Seen.Cluster
	}
	return fmt.Sprint("status ", a.Status, a.Headers["Grpc-Status"])
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

// decider returns what the simulator decides about a call of a proxy, or nil if the proxy would get no configuration.
type decider func(*Proxy, *Case) *simulate.Result

// decider computes the configuration of each proxy once.
func (f *File) decider() decider {
	worlds := map[string]*simulate.World{} // nil: no proxy would get it
	return func(p *Proxy, c *Case) *simulate.Result {
		w, known := worlds[p.Name]
		if !known {
			w, _ = f.World(p)
			worlds[p.Name] = w
		}
		if w == nil {
			return nil
		}
		r, err := w.Call(c.Call.Call)
		if err != nil {
			return nil
		}
		return r
	}
}

// decidesDifferently compares what a caller notices first.
func decidesDifferently(a, b *simulate.Result) bool {
	return a.Status != b.Status || a.Closed != b.Closed || !maps.Equal(a.Clusters, b.Clusters) || !maps.Equal(a.Endpoints, b.Endpoints)
}
