package session

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
)

const (
	freshClasses = 20 // of proxies for which a new proxy connects
	// FreshTime limits the time until a proxy has received everything.
	FreshTime = time.Minute
)

// FinalState compares what every proxy has with what a new proxy receives now, and compares that with the source.
// It finds lost and stale resources.
func (s *Session) FinalState(ctx context.Context) (*results.FinalState, error) {
	f := s.CP.Fleet
	fresh, err := s.connectFresh(ctx, f.Catalog, nil, s.representatives())
	if err != nil {
		return nil, err
	}
	defer fresh.Stop()
	out := &results.FinalState{Fresh: len(fresh.Proxies), Proxies: len(f.Proxies)}
	byClass, byNamespace := map[string]*fleet.Proxy{}, map[string]*fleet.Proxy{}
	for _, p := range fresh.Proxies {
		byClass[p.Class], byNamespace[p.Namespace] = p, p
	}
	for _, p := range f.Proxies {
		same, skip := byClass[p.Class], none
		if same == nil {
			same, skip = byNamespace[p.Namespace], inbound
		}
		if wrong := p.Differs(same, 1, skip); len(wrong) > 0 {
			out.AddWrong("%s: %s", p.Name, wrong[0])
		}
	}
	return out, s.compareSource(ctx, out)
}

func none(fleet.Kind, string) bool { return false }

// inbound reports whether a resource belongs to one workload only.
func inbound(_ fleet.Kind, name string) bool {
	return strings.HasPrefix(name, "inbound") || strings.HasPrefix(name, "virtualInbound")
}

// representatives returns identities of some classes of proxies, with at least one of every namespace.
func (s *Session) representatives() (out []fleet.Identity) {
	classes, namespaces := map[string]bool{}, map[string]bool{}
	for _, p := range s.CP.Fleet.Proxies {
		if !namespaces[p.Namespace] || len(out) < freshClasses && !classes[p.Class] {
			out = append(out, p.Identity)
		}
		classes[p.Class], namespaces[p.Namespace] = true, true
	}
	return out
}

// connectFresh connects new proxies and waits until they have all resources.
func (s *Session) connectFresh(ctx context.Context, c *fleet.Catalog, sink func(fleet.Kind, string, []byte), ids []fleet.Identity) (*fleet.Fleet, error) {
	opts := s.FleetOptions()
	opts.Sink = sink
	f := fleet.NewFleet(c, opts, ids)
	f.Start(ctx)
	one := Subject{Name: s.CP.Name + " (new proxies)", Process: s.CP.Process, Fleet: f}
	if err := one.Await(ctx, f.Open(), FreshTime); err != nil {
		f.Stop()
		return nil, err
	}
	return f, nil
}

// source has the decoded resources of a new proxy.
type source struct {
	mu        sync.Mutex // guards what follows
	decoded   int
	broken    []string
	endpoints map[string][]netip.Addr
	clusters  map[string]uint32   // limits of connections
	hosts     map[string][]string // content of virtual hosts by domain
}

func (d *source) take(k fleet.Kind, name string, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var a anypb.Any
	err := proto.Unmarshal(b, &a)
	var m proto.Message
	if err == nil {
		m, err = a.UnmarshalNew()
	}
	if err != nil {
		d.broken = append(d.broken, fmt.Sprintf("%s %s cannot be decoded: %v", k, name, err))
		return
	}
	d.decoded++
	switch m := m.(type) {
	case *clusterv3.Cluster:
		d.clusters[name] = limitOf(m)
	case *endpointv3.ClusterLoadAssignment:
		d.endpoints[name] = addresses(m)
	case *routev3.RouteConfiguration:
		for _, h := range m.VirtualHosts {
			d.host(h)
		}
	case *routev3.VirtualHost:
		d.host(m)
	}
}

// limitOf returns the limit of connections of a cluster, or 0 if it has none.
func limitOf(c *clusterv3.Cluster) uint32 {
	for _, t := range c.GetCircuitBreakers().GetThresholds() {
		if n := t.GetMaxConnections().GetValue(); n != 0 {
			return n
		}
	}
	return 0
}

// host records a virtual host.
func (d *source) host(h *routev3.VirtualHost) {
	content := h.String()
	for _, domain := range h.Domains {
		d.hosts[domain] = append(d.hosts[domain], content)
	}
}

// routed reports whether there are routes for a host, and whether any of them contains a mark.
func (d *source) routed(host, mark string) (there, marked bool) {
	list := d.hosts[host]
	return len(list) > 0, slices.ContainsFunc(list, func(content string) bool { return strings.Contains(content, mark) })
}

// ofMesh returns the number of the mesh's services with endpoints. An API server also has other services.
func (d *source) ofMesh() (n int) {
	for name := range d.endpoints {
		if strings.HasSuffix(name, meshfiles.Host("")) {
			n++
		}
	}
	return n
}

func addresses(cla *endpointv3.ClusterLoadAssignment) (out []netip.Addr) {
	for _, l := range cla.Endpoints {
		for _, e := range l.LbEndpoints {
			if a, err := netip.ParseAddr(e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()); err == nil {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// compareSource decodes all resources of one proxy and compares them with the mesh.
func (s *Session) compareSource(ctx context.Context, out *results.FinalState) error {
	d := &source{endpoints: map[string][]netip.Addr{}, clusters: map[string]uint32{}, hosts: map[string][]string{}}
	f, err := s.connectFresh(ctx, fleet.NewCatalog(), d.take, []fleet.Identity{s.CP.Fleet.Proxies[0].Identity})
	if err != nil {
		return err
	}
	f.Stop()
	for _, b := range d.broken {
		out.AddWrong("%s", b)
	}
	out.Decoded = d.decoded
	seen := 0
	for name, want := range s.Mesh.Endpoints() {
		if !s.Mesh.Sees(name) {
			continue
		}
		seen++
		if wrong := d.compare(s.Mesh, name, want); wrong != "" {
			out.AddWrong("%s", wrong)
		}
	}
	if n := d.ofMesh(); n > seen {
		out.AddWrong("the proxy has endpoints of %d services, the source of %d", n, seen)
	}
	return nil
}

// compare describes how a service differs from the source, or returns "".
func (d *source) compare(mesh *meshfiles.Mesh, name string, want []netip.Addr) string {
	cluster := meshfiles.ClusterName(name)
	limit, has := d.clusters[cluster]
	want = slices.SortedFunc(slices.Values(want), netip.Addr.Compare)
	there, marked := d.routed(meshfiles.Host(name), mesh.RouteMark(name))
	switch rule := mesh.Connections(name); {
	case !has:
		return fmt.Sprintf("the source has service %s, the proxy no cluster %s", name, cluster)
	case rule != 0 && rule != limit:
		return fmt.Sprintf("the source's DestinationRule allows %d connections to %s, the proxy's cluster %d", rule, name, limit)
	case !slices.Equal(d.endpoints[cluster], want):
		return fmt.Sprintf("the source has endpoints %v of %s, the proxy %v", want, name, d.endpoints[cluster])
	case !there:
		return fmt.Sprintf("the source has service %s, the proxy no virtual host for it", name)
	case mesh.HasRoute(name) && !marked:
		return fmt.Sprintf("the source's VirtualService of %s sets %s, the proxy's routes do not", name, mesh.RouteMark(name))
	}
	return ""
}
