package propagation

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
)

const (
	freshClasses = 20 // of proxies that a fresh one is connected for
	firstWrongs  = 10 // that are told
	freshTime    = time.Minute
)

// finalState compares what every proxy holds with what a fresh one gets that connects
// now: nothing lost, nothing stale; and what the fresh one gets with the source.
func (s *session) finalState(ctx context.Context) (*FinalState, error) {
	f := s.cp.fleet
	fresh, err := s.connectFresh(ctx, f.Catalog, nil, s.representatives())
	if err != nil {
		return nil, err
	}
	defer fresh.Stop()
	out := &FinalState{Fresh: len(fresh.Proxies), Proxies: len(f.Proxies)}
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
			out.wrong("%s: %s", p.Name, wrong[0])
		}
	}
	return out, s.compareSource(ctx, out)
}

func (f *FinalState) wrong(format string, args ...any) {
	if f.Wrong++; len(f.First) < firstWrongs {
		f.First = append(f.First, fmt.Sprintf(format, args...))
	}
}

func none(fleet.Kind, string) bool { return false }

// inbound tells which resources belong to a workload alone.
func inbound(_ fleet.Kind, name string) bool {
	return strings.HasPrefix(name, "inbound") || strings.HasPrefix(name, "virtualInbound")
}

// representatives are identities of some classes of proxies, of every namespace at least one.
func (s *session) representatives() (out []fleet.Identity) {
	classes, namespaces := map[string]bool{}, map[string]bool{}
	for _, p := range s.cp.fleet.Proxies {
		if !namespaces[p.Namespace] || len(out) < freshClasses && !classes[p.Class] {
			out = append(out, p.Identity)
		}
		classes[p.Class], namespaces[p.Namespace] = true, true
	}
	return out
}

// connectFresh connects proxies that never were before, and waits until they have all.
func (s *session) connectFresh(ctx context.Context, c *fleet.Catalog, sink func(fleet.Kind, string, []byte), ids []fleet.Identity) (*fleet.Fleet, error) {
	opts := s.fleetOptions()
	opts.Sink = sink
	f := fleet.NewFleet(c, opts, ids)
	f.Start(ctx)
	one := subject{name: s.cp.name + ", asked by fresh proxies", process: s.cp.process, fleet: f}
	if err := one.await(ctx, f.Open(), freshTime); err != nil {
		f.Stop()
		return nil, err
	}
	return f, nil
}

// source is what a fresh proxy was sent, decoded.
type source struct {
	mu        sync.Mutex // guards what follows
	decoded   int
	broken    []string
	endpoints map[string][]netip.Addr
	clusters  map[string]uint32   // connections that they allow
	hosts     map[string][]string // content of virtual hosts, by domain
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

// limitOf is the number of connections that a cluster allows, the largest number for any; 0: it says none.
func limitOf(c *clusterv3.Cluster) uint32 {
	for _, t := range c.GetCircuitBreakers().GetThresholds() {
		if n := t.GetMaxConnections().GetValue(); n != 0 {
			return n
		}
	}
	return 0
}

// host takes a virtual host, which has any of its domains once.
func (d *source) host(h *routev3.VirtualHost) {
	content := h.String()
	for _, domain := range h.Domains {
		d.hosts[domain] = append(d.hosts[domain], content)
	}
}

// routed tells whether routes for a host came, and whether any of them has a mark.
func (d *source) routed(host, mark string) (there, marked bool) {
	list := d.hosts[host]
	return len(list) > 0, slices.ContainsFunc(list, func(content string) bool { return strings.Contains(content, mark) })
}

// ofMesh is the number of services with endpoints that are the mesh's: an API server has
// services of its own.
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

// compareSource decodes all that one proxy gets, and compares it with what the mesh's
// files say.
func (s *session) compareSource(ctx context.Context, out *FinalState) error {
	d := &source{endpoints: map[string][]netip.Addr{}, clusters: map[string]uint32{}, hosts: map[string][]string{}}
	f, err := s.connectFresh(ctx, fleet.NewCatalog(), d.take, []fleet.Identity{s.cp.fleet.Proxies[0].Identity})
	if err != nil {
		return err
	}
	f.Stop()
	for _, b := range d.broken {
		out.wrong("%s", b)
	}
	out.Decoded = d.decoded
	seen := 0
	for name, want := range s.mesh.Endpoints() {
		if !s.mesh.Sees(name) {
			continue
		}
		seen++
		if wrong := d.compare(s.mesh, name, want); wrong != "" {
			out.wrong("%s", wrong)
		}
	}
	if n := d.ofMesh(); n > seen {
		out.wrong("the proxy has endpoints of %d services, the source has %d", n, seen)
	}
	return nil
}

// compare tells what of a service is not as the source has it; empty: nothing.
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
