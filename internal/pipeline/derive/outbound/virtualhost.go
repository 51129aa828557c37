package outbound

import (
	"net"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// virtualHost makes the virtual host of one host on one port. svc is nil for a host that is not a service.
func virtualHost(r *index.Reader, at placement, h model.Host, svc *model.Service, port *model.ServicePort, routes []*model.VirtualService, out *Result) *ir.VirtualHost {
	rt := &Routing{Reader: r, Host: h, service: svc, Port: port, Uses: &out.Uses}
	headers := r.Headers(r.Mesh())
	v := &ir.VirtualHost{
		RouteConfig:     at.routes.Name,
		Of:              at.routes,
		Host:            h,
		Name:            resourcename.HostPort(h, port.Number),
		Domains:         hostDomains(r.Client, h, svc),
		Absolute:        svc != nil && hasAbsoluteName(r, h),
		IncludeAttempts: !headers.NoAttempts,
		ForwardHost:     headers.ForwardHost,
	}
	if at.sniffed {
		v.Domains, v.Absolute = []string{"*"}, false
	}
	for i := 0; i < len(routes) && len(v.Routes) == 0; i++ {
		v.Routes = rt.merged(routes[i:])
	}
	if len(v.Routes) == 0 {
		useKeeping(r, routes)
	}
	if len(v.Routes) == 0 && svc != nil {
		v.Routes = []ir.Route{rt.defaultRoute()}
	}
	v.RemovesPeerHeader = r.SendsPeerHeader(r.Mesh()) && (svc == nil || !rt.AllOfMesh(v.Routes))
	return v
}

// hasAbsoluteName reports whether clients may write a host with a final dot.
func hasAbsoluteName(r *index.Reader, h model.Host) bool {
	return r.Mesh().AbsoluteFQDN && net.ParseIP(string(h)) == nil
}

// useKeeping adds virtual services without a route for the port to the origins: they keep wider ones from being used.
func useKeeping(r *index.Reader, list []*model.VirtualService) {
	for _, v := range list {
		if !v.Kind.IsKubernetesRoute() {
			r.Use(v)
		}
	}
}

// merged makes the routes of the first virtual service, and of those that merge with it. It returns none if the first has
// none for the port.
func (rt *Routing) merged(list []*model.VirtualService) []ir.Route {
	var out []ir.Route
	several := false
	for i, v := range list {
		if i > 0 && !list[0].Merges(v) {
			continue
		}
		mark := rt.Mark()
		routes := rt.meshRoutes(v)
		switch {
		case len(routes) == 0:
			rt.Unread(mark)
		case len(out) > 0:
			several = true
		}
		if out = append(out, routes...); len(out) == 0 {
			return nil
		}
	}
	if several {
		out = BySpecificity(out)
	}
	return out
}

// meshRoutes are the routes of a virtual service for calls to the host and port; none if it is not for the port.
func (rt *Routing) meshRoutes(v *model.VirtualService) []ir.Route {
	if !rt.parentOf(v) {
		return nil
	}
	return rt.Routes(v)
}

// parentOf reports whether a virtual service is for the host and port. A host that is an alias can have its target's.
func (rt *Routing) parentOf(v *model.VirtualService) bool {
	return v.ForPort(rt.Host, rt.Port.Number) || rt.service != nil && v.ForPort(rt.service.Hostname, rt.Port.Number)
}

// hostDomains are the names under which the clients call a host, the full name first. As in Istio a host that is not a
// service has no other name. Envoy ignores ports when it matches domains.
func hostDomains(c *index.Client, h model.Host, svc *model.Service) []string {
	out := []string{string(h)}
	if svc == nil {
		return out
	}
	if svc.IsKubernetes() {
		out = append(out, shortNames(c, string(h))...)
	}
	if svc.IsKubernetes() && svc.Headless {
		for _, d := range slices.Clone(out) { // names of its Pods
			out = append(out, "*."+d)
		}
	}
	for _, a := range c.Addresses(svc) {
		if !a.IsSingleIP() {
			continue
		}
		text := a.Addr().String()
		if a.Addr().Is6() {
			text = "[" + text + "]"
		}
		if !slices.Contains(out, text) { // Envoy refuses duplicate domains
			out = append(out, text)
		}
	}
	return out
}

// shortNames of "reviews.shop.svc.cluster.local" are "reviews.shop.svc", "reviews.shop" and, in its namespace, "reviews".
func shortNames(c *index.Client, h string) []string {
	base, ok := strings.CutSuffix(h, "."+c.Key.Domain)
	if !ok {
		return nil
	}
	two, ok := strings.CutSuffix(base, ".svc")
	if !ok {
		return nil
	}
	out := []string{base, two}
	if name, ok := strings.CutSuffix(two, "."+c.Key.Namespace); ok && name != "*" && !strings.Contains(name, ".") {
		out = append(out, name)
	}
	return out
}

// The names of virtual hosts for unknown hosts, as in Istio.
const (
	AllowAny = "allow_any"
	BlockAll = "block_all"
)

// UnknownHosts is the virtual host for unknown hosts. If applications connect to the listener itself, there is no original
// destination to pass requests on to.
func UnknownHosts(c *index.Client, mesh *model.Mesh, of ir.RouteConfigKey, bound bool) *ir.VirtualHost {
	v := &ir.VirtualHost{RouteConfig: of.Name, Of: of, Domains: []string{"*"}}
	cluster := c.UnknownCluster(mesh)
	if p := c.EgressProxy(); p != nil && cluster == ir.PassthroughCluster {
		cluster = ir.OutboundCluster(p.Port, p.Subset, p.Host)
		bound = false
	}
	if cluster == ir.BlackHoleCluster || bound {
		v.Name = BlockAll
		v.Routes = []ir.Route{{Name: BlockAll, DirectResponse: &model.DirectResponse{Status: 502}}}
		return v
	}
	v.Name, v.RemovesPeerHeader = AllowAny, c.SendsPeerHeader(mesh)
	v.Routes = []ir.Route{{Name: AllowAny, Backends: []ir.Backend{{Cluster: cluster, Weight: 1}}}}
	return v
}
