package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/translate/cluster"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/meshtest"
	"github.com/moonsail/moonsail/test/meshtest/live"
)

// onDemandSample are the files whose calls are made with configuration on demand if E2E_OUTBOUND does not ask for all: the
// kinds of requests and connections that come to a cluster in different ways.
var onDemandSample = []string{
	"everything", "external-name-alias", "headless-bytes", "mixed-port", "protocols", "registry-only", "se-addresses", "se-tls-sni",
	"sidecar-egress", "sniffed", "tcp", "vs-mirror", "vs-tcp", "vs-weights",
}

// corpusOnDemand makes the calls of the corpus with sidecars that get their configuration on demand. Before their first call
// they have next to nothing. Each call must end as the simulator says it ends with full configuration.
func corpusOnDemand(t *testing.T) {
	files := corpus(t)
	if os.Getenv("E2E_OUTBOUND") != string(model.DeliverOnDemand) {
		files = slices.DeleteFunc(files, func(f *meshtest.File) bool { return !slices.Contains(onDemandSample, f.Name) })
	}
	t.Run("fresh", func(t *testing.T) {
		for _, f := range files {
			for _, p := range f.Proxies {
				if p.Type != model.ProxySidecar || len(f.CallsOf(p)) == 0 {
					continue
				}
				t.Run(f.Name+"/"+p.Name, func(t *testing.T) {
					t.Parallel()
					for _, silent := range []bool{false, true} {
						if calls := callsOf(f, p, silent); len(calls) > 0 {
							o := serveOnDemand(t, p.Model(f.Mesh.Domain))
							o.call(t, f, p, calls, silent)
							o.envoy.process.Kill() // before the next one uses its ports
						}
					}
				})
			}
		}
	})
	t.Run("walk", func(t *testing.T) { // names that one world lacks, and a later one has
		t.Parallel()
		o := serveOnDemand(t, walker)
		for _, f := range files {
			for _, p := range f.Proxies {
				if calls := callsOf(f, p, false); p.Type == model.ProxySidecar && len(calls) > 0 {
					t.Run(f.Name+"/"+p.Name, func(t *testing.T) { o.call(t, f, p, calls, false) })
				}
			}
		}
		require.NotZero(t, o.envoy.stats(t, "odcds.update_attempt$")["cluster_manager.odcds.update_attempt"], "clusters are on demand")
	})
}

func callsOf(f *meshtest.File, p *meshtest.Proxy, silent bool) []meshtest.Case {
	return slices.DeleteFunc(f.CallsOf(p), func(c meshtest.Case) bool { return c.Call.Silent != silent })
}

// onDemandWorld is an Envoy that gets clusters and routes on demand of one world after the other.
type onDemandWorld struct {
	*world
	envoy *bareEnvoy
	kept  derive.ShardedRoutes // from the first world with scopes on, the Envoy asks for them
}

func serveOnDemand(t *testing.T, proxy *model.Proxy) *onDemandWorld {
	t.Helper()
	w := serveWorld(t, server.RoutesAuto)
	w.table = table.NewOnDemand("world", nil)
	return &onDemandWorld{world: w, envoy: startEnvoy(t, envoyOptions{proxy: proxy, xds: w.socket})}
}

// call serves what a proxy of a file gets, and makes calls.
func (o *onDemandWorld) call(t *testing.T, f *meshtest.File, p *meshtest.Proxy, calls []meshtest.Case, silent bool) {
	t.Helper()
	whole, err := f.World(p)
	require.NoError(t, err)
	m, err := live.Prepare(whole, silent)
	require.NoError(t, err)
	defer m.Stop()
	proxy := p.Model(f.Mesh.Domain)
	proxy.OnDemand, proxy.ScopedRoutes = true, true
	mesh := *f.Mesh
	mesh.Delivery = model.DeliverOnDemand
	part := *f
	part.Mesh = &mesh
	r := compileKeeping(t, &part, proxy, o.kept)
	if len(r[resource.Scope]) > 0 {
		o.kept = routeshard.Listener
	}
	r.play(t, m)
	o.set(r)
	why := func() string { return describe(o.server.Proxies()) }
	o.envoy.awaitLive(t, why)
	eventually(t, "Envoy has what precedes calls", func() bool {
		list := o.server.Proxies()
		return len(list) == 1 && idle(list[0]) && list[0].Settled >= o.rev
	}, why)
	listeners, err := o.envoy.admin.Listeners(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Attach(listeners))
	for _, c := range calls {
		want, err := whole.Call(c.Call.Call)
		require.NoError(t, err)
		if live.ByChance(want) {
			continue
		}
		if diff := m.Compare(c.Call.Call, want); len(diff) > 0 {
			t.Errorf("%s: %s\n%s\n--- simulated with full configuration\n%s", c.Name, c.Call.String(), strings.Join(diff, "\n"), want)
		}
	}
	require.Empty(t, held(o.server.Proxies()[0]))
	require.Empty(t, o.envoy.rejected(t))
	requireQuiet(t, o.envoy)
}

// play replaces resources by their played forms.
func (r resources) play(t *testing.T, m *live.Mesh) {
	t.Helper()
	for i, e := range r[resource.Cluster] {
		c := m.Cluster(decode(t, e).(*clusterv3.Cluster))
		encoded, err := resource.Encode(resource.Cluster, e.Name, c)
		if resource.IsOnDemand(e.Version) {
			cluster.SetEndpointsName(c, e.Name)
			encoded, err = resource.EncodeOnDemand(e.Name, c, cluster.SetEndpointsName)
		}
		require.NoError(t, err)
		r[resource.Cluster][i] = encoded
	}
	r.replace(t, resource.Endpoints, func(e proto.Message) proto.Message { return m.Endpoints(e.(*endpointv3.ClusterLoadAssignment)) })
	r.replace(t, resource.Listener, func(l proto.Message) proto.Message {
		played, err := m.Listener(l.(*listenerv3.Listener))
		require.NoError(t, err)
		return played
	})
}
