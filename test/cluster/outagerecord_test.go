package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// record collects responses that proxies should not have received.
type record struct {
	mu        sync.Mutex // guards all below
	responses int
	fewest    int // ready endpoints in any response, plus one; 0: there was none yet
	lost      []string
}

// firstLosses is how many are described.
const firstLosses = 20

// note requires the lock.
func (r *record) note(format string, args ...any) {
	if len(r.lost) < firstLosses {
		r.lost = append(r.lost, fmt.Sprintf(format, args...))
	}
}

// take checks a response to a proxy.
func (r *record) take(proxy string, k fleet.Kind, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.responses++
	var resp discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(b, &resp); err != nil {
		r.note("%s: a response of %s: %v", proxy, k, err)
		return
	}
	for _, name := range resp.RemovedResources {
		if name != fleet.Probe && !strings.Contains(name, mayGo) {
			r.note("%s lost %s %s", proxy, k, name)
		}
	}
	for _, res := range resp.Resources {
		if k == fleet.EDS {
			r.count(proxy, res)
		}
	}
}

// count requires the lock.
func (r *record) count(proxy string, res *discovery.Resource) {
	var list endpoint.ClusterLoadAssignment
	if err := res.Resource.UnmarshalTo(&list); err != nil {
		r.note("%s: endpoints of %s: %v", proxy, res.Name, err)
		return
	}
	n := 0
	for _, l := range list.Endpoints {
		for _, e := range l.LbEndpoints {
			if e.HealthStatus == core.HealthStatus_UNKNOWN || e.HealthStatus == core.HealthStatus_HEALTHY {
				n++
			}
		}
	}
	if n == 0 {
		r.note("%s lost all endpoints of %s", proxy, res.Name)
	}
	if r.fewest == 0 || n+1 < r.fewest {
		r.fewest = n + 1
	}
}

// told returns the findings.
func (r *record) told() (lost []string, fewest, responses int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost, r.fewest - 1, r.responses
}

// settle waits until each proxy has what a new list of the API server gives.
func (o *outage) settle() {
	o.t.Helper()
	client, err := kube.Connect(kube.Cluster{Kubeconfig: o.c.Kubeconfig()})
	require.NoError(o.t, err)
	defer client.Close()
	mesh := model.DefaultMesh()
	var last error // a difference explains more than the end of the time
	o.c.Eventually(o.t, "proxies hold what the API server says", func(ctx context.Context) error {
		content, err := client.Read(ctx, config.Decoder{}, mesh.RootNamespace)
		if err != nil {
			return cmp.Or(last, err)
		}
		last = o.unlike(mesh, content)
		return last
	})
}

// unlike returns a difference between a proxy and what a list of the API server gives.
func (o *outage) unlike(mesh *model.Mesh, content *kube.Content) error {
	want := map[string]map[resource.Type][]*resource.Encoded{} // by namespace: these proxies differ in nothing else
	for _, p := range o.fleet.Proxies {
		if want[p.Namespace] == nil {
			want[p.Namespace], _ = engine.Compile(mesh, content.Objects, modelOf(p))
		}
		if diff := unlike(p.Holdings(), want[p.Namespace]); diff != "" {
			return fmt.Errorf("%s: %s", p.Name, diff)
		}
	}
	return nil
}

func modelOf(p *fleet.Proxy) *model.Proxy {
	return &model.Proxy{
		ID: p.ID(), Type: model.ProxySidecar, Name: p.Name, Namespace: p.Namespace, IPs: []string{p.IP},
		ServiceAccount: "default", DNSDomain: p.Namespace + ".svc.cluster.local",
	}
}

// forms maps the kinds of a fleet's proxies to types.
var forms = map[fleet.Kind]resource.Type{
	fleet.CDS: resource.Cluster, fleet.EDS: resource.Endpoints, fleet.LDS: resource.Listener,
	fleet.RDS: resource.VHDSRouteConfig, fleet.VHDS: resource.VirtualHost,
}

// unlike compares what a proxy has with what it should have, of all kinds; "": they are equal.
func unlike(has fleet.Holdings, want map[resource.Type][]*resource.Encoded) string {
	for k, typ := range forms {
		list := byName(want[typ])
		for name, e := range list {
			if has[k][name] != e.Version {
				return fmt.Sprintf("%s %s: version %q, should be %q", k, name, has[k][name], e.Version)
			}
		}
		for name := range has[k] {
			if list[name] == nil {
				return fmt.Sprintf("%s %s should be gone", k, name)
			}
		}
	}
	return ""
}
