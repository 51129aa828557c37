package istio

import (
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/model"
)

// patchMatch reads what a patch is for; not ok where nothing can match.
func (c *conv) patchMatch(at path, m *networking.EnvoyFilter_EnvoyConfigObjectMatch, out *model.EnvoyPatch) bool {
	if m == nil {
		return true
	}
	switch m.Context {
	case networking.EnvoyFilter_WAYPOINT:
		c.warnf(at.f("context"), "the mesh has no waypoints; the patch is left out")
		return false
	case networking.EnvoyFilter_ANY:
	default:
		out.Context = model.PatchContext(m.Context.String())
	}
	out.ProxyVersion = c.proxyVersion(at.f("proxy").f("proxyVersion"), m.GetProxy().GetProxyVersion())
	out.ProxyMetadata = m.GetProxy().GetMetadata()
	switch of := m.ObjectTypes.(type) {
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_Listener:
		return c.fits(at.f("listener"), out.Target, "listener") && c.listenerMatch(at.f("listener"), of.Listener, out)
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_RouteConfiguration:
		out.Routes = routeConfigMatch(of.RouteConfiguration)
		return c.fits(at.f("routeConfiguration"), out.Target, "routeConfiguration")
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_Cluster:
		out.Cluster = clusterMatch(of.Cluster)
		return c.fits(at.f("cluster"), out.Target, "cluster")
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_Waypoint:
		c.warnf(at.f("waypoint"), "the mesh has no waypoints; the patch is left out")
		return false
	}
	return true
}

// matchOf is the match that a target may have.
var matchOf = map[model.PatchTarget]string{
	model.PatchListener: "listener", model.PatchFilterChain: "listener", model.PatchListenerFilter: "listener",
	model.PatchNetworkFilter: "listener", model.PatchHTTPFilter: "listener",
	model.PatchRouteConfig: "routeConfiguration", model.PatchVirtualHost: "routeConfiguration", model.PatchHTTPRoute: "routeConfiguration",
	model.PatchCluster: "cluster",
}

// fits tells whether a target can have a match of a kind. An extension's is not looked at.
func (c *conv) fits(at path, target model.PatchTarget, kind string) bool {
	want, some := matchOf[target]
	if some && want != kind {
		c.errorf(at, "cannot be used with applyTo %s; match by %s", target, want)
		return false
	}
	return true
}

func (c *conv) listenerMatch(at path, m *networking.EnvoyFilter_ListenerMatch, out *model.EnvoyPatch) bool {
	chain := m.GetFilterChain()
	out.Listener = &model.ListenerMatch{
		Name: m.GetName(), Port: m.GetPortNumber(), ListenerFilter: envoyext.Canonical(m.GetListenerFilter()),
		ChainName: chain.GetName(), SNI: chain.GetSni(), TransportProtocol: chain.GetTransportProtocol(),
		DestinationPort: chain.GetDestinationPort(),
		Filter:          envoyext.Canonical(chain.GetFilter().GetName()),
		SubFilter:       envoyext.Canonical(chain.GetFilter().GetSubFilter().GetName()),
	}
	if p := chain.GetApplicationProtocols(); p != "" {
		out.Listener.ApplicationProtocols = strings.Split(p, ",")
	}
	if m.GetPortName() != "" {
		c.warnf(at.f("portName"), "has no effect; match by portNumber")
	}
	return c.filterMatch(at.f("filterChain").f("filter"), chain.GetFilter(), out.Target)
}

func (c *conv) filterMatch(at path, m *networking.EnvoyFilter_ListenerMatch_FilterMatch, target model.PatchTarget) bool {
	switch {
	case m == nil:
		return true
	case m.Name == "":
		c.errorf(at.f("name"), "is missing; name the network filter")
		return false
	case target == model.PatchListener || target == model.PatchFilterChain:
		c.warnf(at, "has no effect with applyTo %s", target)
	}
	if m.SubFilter == nil {
		return true
	}
	at = at.f("subFilter")
	switch {
	case target != model.PatchHTTPFilter:
		c.errorf(at, "can be used with applyTo HTTP_FILTER only")
	case envoyext.Canonical(m.Name) != "envoy.filters.network.http_connection_manager":
		c.errorf(at, "needs a filter that has HTTP filters; name envoy.filters.network.http_connection_manager")
	case m.SubFilter.Name == "":
		c.errorf(at.f("name"), "is missing; name the HTTP filter")
	default:
		return true
	}
	return false
}

func routeConfigMatch(m *networking.EnvoyFilter_RouteConfigurationMatch) *model.RouteConfigMatch {
	out := &model.RouteConfigMatch{
		Name: m.GetName(), Port: m.GetPortNumber(), PortName: m.GetPortName(), Gateway: m.GetGateway(),
		VirtualHost: m.GetVhost().GetName(), Domain: m.GetVhost().GetDomainName(),
	}
	if r := m.GetVhost().GetRoute(); r != nil {
		out.Route = &model.RouteMatch{Name: r.Name}
		if r.Action != networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY {
			out.Route.Action = r.Action.String()
		}
	}
	return out
}

func clusterMatch(m *networking.EnvoyFilter_ClusterMatch) *model.ClusterMatch {
	return &model.ClusterMatch{Name: m.GetName(), Service: model.Host(m.GetService()), Subset: m.GetSubset(), Port: m.GetPortNumber()}
}

// ownNames are those that the mesh gives to listeners and clusters. What is added may not
// have them.
var ownNames = regexp.MustCompile(`^(virtualInbound|virtualOutbound|scopes|BlackHoleCluster|PassthroughCluster|InboundPassthroughCluster|(in|out)bound\|.*|\[?[0-9a-fA-F.:]+\]?_[0-9]+)$`)

// packPatch encodes a patch's message.
func (c *conv) packPatch(at path, m proto.Message, out *model.EnvoyPatch) bool {
	var err error
	if out.Value, err = envoyext.Pack(m); err != nil {
		c.warnf(at, "cannot be encoded: %v; the patch is left out", err)
		return false
	}
	out.Name, out.Domains = envoyext.NameOf(m), envoyext.DomainsOf(m)
	if out.Operation != model.PatchAdd {
		return true
	}
	switch out.Target {
	case model.PatchListener, model.PatchCluster, model.PatchVirtualHost, model.PatchExtensionConfig:
		if out.Name == "" {
			c.warnf(at.f("name"), "is missing; what is added needs a name; the patch is left out")
			return false
		}
	}
	if (out.Target == model.PatchListener || out.Target == model.PatchCluster) && ownNames.MatchString(out.Name) {
		c.warnf(at.f("name"), "%q is a name that the mesh gives itself; use MERGE, or another name; the patch is left out", out.Name)
		return false
	}
	return true
}
