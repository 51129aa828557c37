package simulate

import (
	"fmt"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// Check lists what Envoy would refuse (NACK) or never finish warming: violations of the protos' validation
// rules, duplicates, and dangling names. It lists routes to unknown clusters, too, which Envoy accepts and
// answers with 503 or 500.
func (w *World) Check() []string {
	c := &checker{w: w}
	c.listeners()
	c.clusters()
	seen := map[string]bool{}
	for _, rc := range w.Routes {
		c.validate("route configuration "+rc.GetName(), rc)
		c.unique(seen, "route configuration", rc.GetName())
		if whole, err := w.routeConfig(rc.GetName()); err == nil {
			c.virtualHosts(whole)
		}
	}
	for _, vh := range w.VirtualHosts {
		c.validate("virtual host "+vh.GetName(), vh)
	}
	return c.problems
}

type checker struct {
	w        *World
	problems []string
}

func (c *checker) addf(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func (c *checker) unique(seen map[string]bool, what, name string) {
	if seen[name] {
		c.addf("%s %q: duplicate", what, name)
	}
	seen[name] = true
}

// validate runs the validation rules of the protos, also on the content of an Any.
func (c *checker) validate(what string, m proto.Message) {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			c.addf("%s: %v", what, err)
		}
	}
	for _, a := range anys(m.ProtoReflect()) {
		inner, err := a.UnmarshalNew()
		if err != nil {
			c.addf("%s: %s: %v", what, a.GetTypeUrl(), err)
			continue
		}
		c.validate(what, inner)
	}
}

// anys returns the Any messages in m, without those inside of another one.
func anys(m protoreflect.Message) []*anypb.Any {
	if a, ok := m.Interface().(*anypb.Any); ok {
		return []*anypb.Any{a}
	}
	var out []*anypb.Any
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				out = append(out, anys(v.Message())...)
				return true
			})
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				out = append(out, anys(v.List().Get(i).Message())...)
			}
		case !f.IsMap() && !f.IsList() && f.Message() != nil:
			out = append(out, anys(v.Message())...)
		}
		return true
	})
	return out
}

func (c *checker) clusters() {
	seen := map[string]bool{}
	for _, cl := range c.w.Clusters {
		c.validate("cluster "+cl.GetName(), cl)
		c.unique(seen, "cluster", cl.GetName())
		if err := c.w.fill(&Upstream{}, cl, &request{}); err != nil {
			c.addf("cluster %s: %v", cl.GetName(), err)
		}
	}
	seen = map[string]bool{}
	for _, a := range c.w.Endpoints {
		c.validate("endpoints "+a.GetClusterName(), a)
		c.unique(seen, "endpoints", a.GetClusterName())
	}
}

func (c *checker) listeners() {
	names, at := map[string]bool{}, map[string]bool{}
	for _, l := range c.w.Listeners {
		c.validate("listener "+l.GetName(), l)
		c.unique(names, "listener", l.GetName())
		for _, a := range addresses(l) {
			c.unique(at, "listener address", a.String())
		}
		c.chains(l)
	}
}

// chains finds filter chains with equal matches and partial wildcards of SNI, which Envoy refuses.
func (c *checker) chains(l *listenerv3.Listener) {
	seen := map[string]bool{}
	all := l.GetFilterChains()
	if len(all) == 0 && l.GetDefaultFilterChain() == nil {
		c.addf("listener %s has no filter chain", l.GetName())
	}
	for _, chain := range all {
		m := chain.GetFilterChainMatch()
		key, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if seen[string(key)] {
			c.addf("listener %s: filter chain %q: another one has the same match", l.GetName(), chain.GetName())
		}
		seen[string(key)] = true
		for _, name := range m.GetServerNames() {
			if strings.Contains(strings.TrimPrefix(name, "*."), "*") || name != strings.ToLower(name) {
				c.addf("listener %s: filter chain %q: bad server name %q", l.GetName(), chain.GetName(), name)
			}
		}
	}
	if d := l.GetDefaultFilterChain(); d != nil {
		all = append(append([]*listenerv3.FilterChain{}, all...), d)
	}
	for _, chain := range all {
		c.chain(l.GetName(), chain)
	}
}

func (c *checker) chain(listener string, chain *listenerv3.FilterChain) {
	for _, f := range chain.GetFilters() {
		msg, err := unpack(f.GetTypedConfig())
		if err != nil {
			c.addf("listener %s: filter %s: %v", listener, f.GetName(), err)
			continue
		}
		switch m := msg.(type) {
		case *hcmv3.HttpConnectionManager:
			c.hcm(listener, m)
		case *tcpv3.TcpProxy:
			c.reference("listener "+listener, m.GetCluster())
			for _, wc := range m.GetWeightedClusters().GetClusters() {
				c.reference("listener "+listener, wc.GetName())
			}
		}
	}
}

func (c *checker) hcm(listener string, m *hcmv3.HttpConnectionManager) {
	if name := m.GetRds().GetRouteConfigName(); name != "" {
		if _, err := c.w.routeConfig(name); err != nil {
			c.addf("listener %s: %v", listener, err)
		}
	}
	if rc := m.GetRouteConfig(); rc != nil {
		c.virtualHosts(rc)
	}
	if n := len(m.GetHttpFilters()); n == 0 || m.GetHttpFilters()[n-1].GetName() != "envoy.filters.http.router" {
		c.addf("listener %s: the last HTTP filter is not the router", listener)
	}
}

// virtualHosts finds domains that occur twice in a route configuration, which Envoy refuses.
func (c *checker) virtualHosts(rc *routev3.RouteConfiguration) {
	names, domains := map[string]bool{}, map[string]bool{}
	for _, vh := range rc.GetVirtualHosts() {
		c.unique(names, "route configuration "+rc.GetName()+": virtual host", vh.GetName())
		for _, d := range vh.GetDomains() {
			c.unique(domains, "route configuration "+rc.GetName()+": domain", strings.ToLower(d))
		}
		for _, r := range vh.GetRoutes() {
			where := "route configuration " + rc.GetName() + ", virtual host " + vh.GetName()
			c.reference(where, r.GetRoute().GetCluster())
			for _, wc := range r.GetRoute().GetWeightedClusters().GetClusters() {
				c.reference(where, wc.GetName())
			}
			for _, m := range r.GetRoute().GetRequestMirrorPolicies() {
				c.reference(where, m.GetCluster())
			}
		}
	}
}

func (c *checker) reference(where, cluster string) {
	if cluster != "" && c.w.cluster(cluster) == nil {
		c.addf("%s: unknown cluster %q", where, cluster)
	}
}
