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
	"github.com/moonsail/moonsail/test/short"
)

// ways are how resources reach a proxy. Routers are included where one Envoy can be both a sidecar and a router. With
// scopes it cannot: a sidecar that has had scopes keeps a listener for them that a router does not have. With
// state-of-the-world xDS it cannot either: Envoy does not learn that a Secret is missing, and waits for 15 s.
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

// TestCorpusOnEnvoy serves everything that the corpus of the translation generates to real Envoys. They must accept all
// of it, and have exactly what was compiled.
func TestCorpusOnEnvoy(t *testing.T) {
	// Package meshtest/live covers those that name certificates in files of the sidecar, which its agent reads.
	files := short.Sample(slices.DeleteFunc(corpus(t), func(f *meshtest.File) bool { return f.Name == "sidecar-tls" || f.Name == "files" }))
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
	t.Run("on demand", corpusOnDemand)
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

// withoutAgent returns a proxy of a file without certificates, because it would wait for them. Package meshtest/live
// serves them.
func withoutAgent(f *meshtest.File, p *meshtest.Proxy) *model.Proxy {
	out := p.Model(f.Mesh.Domain)
	out.Identity = false
	return out
}

// walker is the identity of an Envoy that gets one world after the other.
var walker = &model.Proxy{
	Name: "walker", Namespace: "default", IPs: []string{"10.99.0.1"},
	DNSDomain: "default.svc.cluster.local", Interception: model.InterceptRedirect,
}

// requireHolds waits until an Envoy has exactly the resources r, and nothing was refused.
func requireHolds(t *testing.T, w *world, e *bareEnvoy, r resources) {
	t.Helper()
	want := r.compiled(t)
	var seen []byte
	var diff []string
	eventually(t, "Envoy holds what was compiled", func() bool {
		if list := w.server.Proxies(); len(list) != 1 || !idle(list[0]) {
			return false
		}
		if text := e.text(t); !bytes.Equal(text, seen) { // Envoy's dump takes longer to parse than to write
			seen, diff = text, e.read(t, text).differences(want)
		}
		return len(diff) == 0
	}, func() string { return strings.Join(diff, "\n") + "\nproxies: " + describe(w.server.Proxies()) })
	require.Empty(t, held(w.server.Proxies()[0]))
	require.Empty(t, e.rejected(t))
}

// requireQuiet checks that Envoy logs no warnings: users would ask about them.
func requireQuiet(t *testing.T, e *bareEnvoy) {
	t.Helper()
	require.Empty(t, lines(e.log.String(), "[warning]", "[error]", "[critical]"))
}
