package e2e

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/meshtest"
)

// ways are how resources reach a proxy. Routers' worlds are walked through where one Envoy can be both:
// a sidecar that has had scopes keeps a listener for them that a router does not have, and by the state of the
// world Envoy is not told that a Secret is missing, but waits for 15 s.
var ways = []struct {
	name     string
	strategy server.RouteStrategy
	sotw     bool
	routers  bool
}{
	{"vhds", server.RoutesAuto, false, true},
	{"rds", server.RoutesRDS, false, true},
	{"scoped", server.RoutesScoped, false, false},
	{"sotw", server.RoutesAuto, true, false},
}

// TestCorpusOnEnvoy gives everything that the corpus of the translation generates to real
// Envoys. They accept all of it, and hold what was compiled, no more and no less.
func TestCorpusOnEnvoy(t *testing.T) {
	// Those that name certificates in files of the sidecar, which its agent reads, are package meshtest/live's alone.
	files := slices.DeleteFunc(corpus(t), func(f *meshtest.File) bool { return f.Name == "sidecar-tls" || f.Name == "files" })
	t.Run("fresh", func(t *testing.T) {
		for _, f := range files {
			for _, p := range f.Proxies {
				t.Run(f.Name+"/"+p.Name, func(t *testing.T) {
					t.Parallel()
					w := serveWorld(t, server.RoutesAuto)
					proxy := withoutAgent(f, p)
					e := startEnvoy(t, envoyOptions{proxy: proxy, xds: w.socket})
					r := compile(t, f, proxy)
					r.loopback(t)
					w.set(r)
					e.awaitLive(t, func() string { return describe(w.server.Proxies()) })
					requireHolds(t, w, e, r)
					requireQuiet(t, e)
				})
			}
		}
	})
	for _, way := range ways {
		t.Run("walk "+way.name, func(t *testing.T) {
			t.Parallel()
			w := serveWorld(t, way.strategy)
			e := startEnvoy(t, envoyOptions{proxy: walker, xds: w.socket, sotw: way.sotw})
			kept := derive.ShardedRoutes("") // from the first world with scopes on it asks for them
			for _, f := range files {
				for _, p := range f.Proxies {
					if p.Type == model.ProxyRouter && !way.routers {
						continue
					}
					proxy := withoutAgent(f, p)
					proxy.ScopedRoutes = way.strategy == server.RoutesScoped
					r := compileKeeping(t, f, proxy, kept)
					if len(r[resource.Scope]) > 0 {
						kept = routeshard.Listener
					}
					r.loopback(t)
					w.set(r)
					t.Run(f.Name+"/"+p.Name, func(t *testing.T) { requireHolds(t, w, e, r) })
				}
			}
			requireQuiet(t, e)
		})
	}
}

// withoutAgent is a proxy of a file that gets no certificates: it would wait for them. Package
// meshtest/live has them served.
func withoutAgent(f *meshtest.File, p *meshtest.Proxy) *model.Proxy {
	out := p.Model(f.Mesh.Domain)
	out.Identity = false
	return out
}

// walker is the identity of an Envoy that is given one world after the other.
var walker = &model.Proxy{
	Name: "walker", Namespace: "default", IPs: []string{"10.99.0.1"},
	DNSDomain: "default.svc.cluster.local", Interception: model.InterceptRedirect,
}

// requireHolds waits until an Envoy holds exactly what it should, and nothing was refused.
func requireHolds(t *testing.T, w *world, e *bareEnvoy, r resources) {
	t.Helper()
	want := r.compiled(t)
	var seen []byte
	var diff []string
	eventually(t, "Envoy holds what was compiled", func() bool {
		if list := w.server.Proxies(); len(list) != 1 || !idle(list[0]) {
			return false
		}
		if text := e.text(t); !bytes.Equal(text, seen) { // to read it takes longer than Envoy does
			seen, diff = text, read(t, text).differences(want)
		}
		return len(diff) == 0
	}, func() string { return strings.Join(diff, "\n") + "\nproxies: " + describe(w.server.Proxies()) })
	require.Empty(t, held(w.server.Proxies()[0]))
	require.Empty(t, e.rejected(t))
}

// requireQuiet: what Envoy warns of, users would ask us about.
func requireQuiet(t *testing.T, e *bareEnvoy) {
	t.Helper()
	require.Empty(t, lines(e.log.String(), "[warning]", "[error]", "[critical]"))
}
