package index

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Client is what derivation knows of the proxies of one group. Everything else comes from a Reader.
type Client struct {
	Key     GroupKey
	Labels  map[string]string // Key.Labels, parsed
	Sidecar *model.Sidecar    // that selects the proxies; nil: none
	Egress  []Egress          // the Sidecar's egress listeners; without a Sidecar one that imports everything
	Root    string            // the root namespace
	// RoutedOnly: the clients get the clusters of a service only if something leads to it.
	RoutedOnly bool
}

// NewClient describes the proxies of a group.
func NewClient(k GroupKey, sidecar *model.Sidecar) *Client {
	c := &Client{Key: k, Labels: ParseLabels(k.Labels)}
	c.SetSidecar(sidecar)
	return c
}

// SetSidecar puts a new version of the Sidecar in force.
func (c *Client) SetSidecar(s *model.Sidecar) { c.Sidecar, c.Egress = s, c.egressOf(s) }

// Egress is one egress listener.
type Egress struct {
	model.EgressListener
	// Routes is the route configuration of a listener with a port.
	Routes ir.RouteConfigKey
	// at is where a listener with a port listens; without an address: nowhere.
	at ir.ListenerKey
}

// importsAll is the egress listener of workloads without a Sidecar.
var importsAll = Egress{EgressListener: model.EgressListener{Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}}}}

// egressOf lists the egress listeners of a Sidecar.
func (c *Client) egressOf(s *model.Sidecar) []Egress {
	if s == nil || len(s.Egress) == 0 {
		return []Egress{importsAll}
	}
	out := make([]Egress, 0, len(s.Egress))
	first := map[uint32]string{} // the bind address of a port's first listener
	for _, l := range s.Egress {
		e := Egress{EgressListener: l}
		e.Hosts = hostsFor(l.Hosts, c.Key.Namespace)
		if l.Port != nil {
			if _, ok := first[l.Port.Number]; !ok {
				first[l.Port.Number] = l.Bind
			}
			e.Routes = ir.PortRoutes(l.Port.Number)
			if first[l.Port.Number] != l.Bind {
				e.Routes = ir.AddressRoutes(l.Bind, l.Port.Number)
			}
			e.at, _ = c.Listen(&e, l.Port.Number)
		}
		out = append(out, e)
	}
	return out
}

// hostsFor resolves entries for workloads of a namespace. It does not change the list.
func hostsFor(list []model.HostSelector, namespace string) []model.HostSelector {
	out := slices.Clone(list)
	for i := range out {
		if out[i].Namespace == model.HostsHere {
			out[i].Namespace = namespace
		}
	}
	return out
}

// CaptureNone reports whether applications connect to the listener themselves.
func (e *Egress) CaptureNone(mode model.Interception) bool {
	return e.Capture == model.CaptureNone || e.Capture == model.CaptureDefault && mode == model.InterceptNone
}

// Protocol is the protocol of a service's port at the listener. The listener's own goes before the port's.
func (e *Egress) Protocol(port *model.ServicePort) model.Protocol {
	if e.Port != nil && e.Port.Protocol != model.ProtocolAuto && e.Port.Protocol != "" {
		return e.Port.Protocol
	}
	return port.Protocol
}

// Imports reports whether the listener's entries select host h of namespace ns. At least one entry must match, and no
// entry may exclude it.
func (e *Egress) Imports(ns string, h model.Host) bool { return e.selects(ns, h, model.Host.Matches) }

// ImportsAny reports whether a virtual service with these hosts is imported: one of its hosts overlaps with an entry and
// is not excluded.
func (e *Egress) ImportsAny(ns string, hosts []model.Host) bool {
	return slices.ContainsFunc(hosts, func(h model.Host) bool { return e.selects(ns, h, model.Host.Overlaps) })
}

// selects reports whether the host of some entry matches h, and no entry excludes all of h.
func (e *Egress) selects(ns string, h model.Host, matches func(entry, h model.Host) bool) bool {
	found := false
	for _, sel := range e.Hosts {
		switch {
		case sel.Namespace != "*" && sel.Namespace != ns:
		case !sel.Exclude:
			found = found || matches(sel.Host, h)
		case sel.Host.Matches(h):
			return false
		}
	}
	return found
}

// Sees reports whether a service can be reached through some egress listener.
func (c *Client) Sees(svc *model.Service) bool {
	if !svc.Visibility.Sees(c.Key.Namespace) {
		return false
	}
	for i := range c.Egress {
		if c.Egress[i].Imports(svc.Namespace, svc.Hostname) {
			return true
		}
	}
	return false
}

// Offers reports whether the clients get the clusters of a service that nothing leads to.
func (c *Client) Offers(svc *model.Service) bool { return !c.RoutedOnly && c.Sees(svc) }

// precedes compares two services of one host; b is older. For gateways a Kubernetes Service comes first, as in Istio.
func (c *Client) precedes(a, b *model.Service) bool {
	if x, y := c.Sees(a), c.Sees(b); x != y {
		return x
	}
	if c.Key.Type == model.ProxyRouter && a.IsKubernetes() != b.IsKubernetes() {
		return a.IsKubernetes()
	}
	return Precedes(c.Key.Namespace, a, b)
}

// Precedes reports whether sidecars of a namespace use service a, and not the older b of the same host, if they see both: one
// of their namespace, then a Kubernetes Service, then one that is exported to some namespaces only.
func Precedes(namespace string, a, b *model.Service) bool {
	if x, y := a.Namespace == namespace, b.Namespace == namespace; x != y {
		return x
	}
	if a.IsKubernetes() != b.IsKubernetes() {
		return a.IsKubernetes()
	}
	return a.Visibility.Private && !b.Visibility.Private
}

// ImportsRoutes reports whether a virtual service counts at some egress listener.
func (c *Client) ImportsRoutes(v *model.VirtualService) bool {
	for i := range c.Egress {
		if c.ImportsRoutesAt(&c.Egress[i], v) {
			return true
		}
	}
	return false
}

// ImportsRoutesAt reports whether a virtual service counts at an egress listener. What other listeners import does not.
func (c *Client) ImportsRoutesAt(e *Egress, v *model.VirtualService) bool {
	return v.Visibility.Sees(c.Key.Namespace) && e.ImportsAny(v.Namespace, v.MeshHosts())
}

// Rank orders virtual services of one host, as Istio does: 0 for those of the client's namespace that are not public, 1
// for those that others share with this namespace, 2 for its public routes of the Gateway API, and 3 for other public ones.
func (c *Client) Rank(v *model.VirtualService) int {
	switch {
	case !v.Visibility.Private && v.Kind.IsKubernetesRoute() && v.Namespace == c.Key.Namespace:
		return 2
	case !v.Visibility.Private:
		return 3
	case v.Namespace == c.Key.Namespace:
		return 0
	}
	return 1
}

// The addresses of all hosts and of the workload itself, by IP family.
const (
	AnyAddress    = "0.0.0.0"
	AnyAddress6   = "::"
	localAddress  = "127.0.0.1"
	localAddress6 = "::1"
)

// Any is the address of listeners for all destinations. With both families it is IPv4's; policy.Finish adds the other.
func (c *Client) Any() string {
	if c.Key.Families == model.IPv6 {
		return AnyAddress6
	}
	return AnyAddress
}

// Local is the address at which the workload's own processes reach each other.
func (c *Client) Local() string {
	if c.Key.Families == model.IPv6 {
		return localAddress6
	}
	return localAddress
}

// MayCall reports whether the clients may call an endpoint of a service. On their own host are Envoy's admin interface, the agent and
// the socket with the workload's key. So an endpoint there needs an author whom the clients trust: of their own namespace, or of the
// root namespace. Clients with loopback addresses may call other loopback addresses. A name may resolve to an address of the host, so
// ports of Envoy and of the agent are refused there.
func (c *Client) MayCall(svc *model.Service, address string, port uint32) bool {
	switch {
	case c.Trusts(svc):
		return true
	case model.IsOwnHost(address):
		return c.Key.Loopback && model.IsLoopback(address)
	}
	return !model.IsOwnPort(port) || model.IsIP(address)
}

// Trusts reports whether a service may have endpoints on the clients' own host.
func (c *Client) Trusts(svc *model.Service) bool {
	return svc.Namespace == c.Key.Namespace || svc.Namespace == c.Root
}

// Opens reports whether the proxies can listen at an address. If they cannot, Envoy would refuse the listener; as in
// Istio there is none.
func (c *Client) Opens(k ir.ListenerKey) bool {
	return !c.Key.Unprivileged || k.Port >= model.PrivilegedPorts || !model.IsIP(k.Address)
}

// Listen is where an egress listener listens for a port; false: the proxies cannot listen there.
func (c *Client) Listen(e *Egress, port uint32) (ir.ListenerKey, bool) {
	captureNone := e.CaptureNone(c.Key.Interception)
	k := ir.ListenerKey{Address: e.Bind, Port: port}
	switch {
	case k.Address != "":
	case captureNone:
		k.Address = c.Local()
	default:
		k.Address = c.Any()
	}
	if captureNone && !c.Opens(k) {
		return ir.ListenerKey{}, false
	}
	return k, true
}

// Taken reports whether an egress listener with a port listens at an address. Only its hosts are served there.
func (c *Client) Taken(k ir.ListenerKey) bool {
	return slices.ContainsFunc(c.Egress, func(e Egress) bool { return e.Port != nil && e.at == k })
}

// metricsPort is where Envoy serves its own metrics, by a listener of the bootstrap. Connections to that port are not
// redirected to the sidecar that has it, and connections from the workload pass through.
const metricsPort = 15090

// Reserved reports whether an address belongs to the sidecar itself: for redirected connections, for Envoy's metrics, or for
// an ingress listener. Envoy refuses a second listener for an address, even if it is not bound. A service with that port
// would leave new sidecars without virtualInbound, or without the ingress listener.
func (c *Client) Reserved(mesh *model.Mesh, k ir.ListenerKey) bool {
	return c.Key.Interception != model.InterceptNone && c.Key.Type == model.ProxySidecar &&
		k.Address == c.Any() && (k.Port == mesh.InboundPort || k.Port == mesh.OutboundPort || k.Port == metricsPort) ||
		c.hasIngress(k)
}

// hasIngress reports whether an ingress listener of the Sidecar listens at an address.
func (c *Client) hasIngress(k ir.ListenerKey) bool {
	return c.Sidecar != nil && c.Opens(k) && slices.ContainsFunc(c.Sidecar.Ingress, func(in model.IngressListener) bool {
		return in.CaptureNone(c.Key.Interception) && in.Port.Number == k.Port && cmp.Or(in.Bind, c.Key.IP) == k.Address
	})
}

// Headers are the headers that the proxies set: by their own settings, else by the mesh's.
func (c *Client) Headers(mesh *model.Mesh) model.ProxyHeaders {
	if c.Key.Headers.Set {
		return c.Key.Headers
	}
	return mesh.Headers
}

// Connections bound the connections of the proxies' clients: by their own settings, else by the mesh's; nil: unset.
func (c *Client) Connections(mesh *model.Mesh) *model.ConnectionSettings {
	out := mesh.Connections
	if c.Key.Connections != "" {
		out = c.Key.Connections.Settings()
	}
	if c.Key.IsRouter() {
		return out.ForGateway()
	}
	return out
}

// PartsOf lists the parts of a service that the clients see: the service itself if it has no parts.
func (c *Client) PartsOf(svc *model.Service) []*model.Service {
	if svc.Parts == nil {
		return []*model.Service{svc}
	}
	return slices.DeleteFunc(slices.Clone(svc.Parts), func(p *model.Service) bool { return !c.Sees(p) })
}

// Addresses are those at which the clients reach a service.
func (c *Client) Addresses(svc *model.Service) []netip.Prefix {
	if svc.Parts != nil {
		var out []netip.Prefix
		for _, p := range c.PartsOf(svc) {
			out = append(out, c.Addresses(p)...)
		}
		return out
	}
	if len(svc.Addresses) > 0 || len(svc.Auto) == 0 || !c.Key.AutoAddress {
		return svc.Addresses
	}
	var out []netip.Prefix
	for _, a := range c.Key.Families.Of(svc.Auto) {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// OwnLabels are those of the workload itself, without those that it gets from its place.
func (c *Client) OwnLabels() map[string]string {
	if c.Key.OwnLabels == "" {
		return c.Labels
	}
	return ParseLabels(c.Key.OwnLabels)
}

// NamedPorts are the container ports of the workload, by name.
func (c *Client) NamedPorts() map[string]uint32 {
	named := map[string]uint32{}
	for n, p := range ParseLabels(c.Key.Ports) {
		v, _ := strconv.ParseUint(p, 10, 32)
		named[n] = uint32(v)
	}
	return named
}

// SendsPeerHeader reports whether the proxies state in a header who calls. The mesh's metrics must need it. The proxies must have
// certificates, because servers believe no others, and agents that know the answer.
func (c *Client) SendsPeerHeader(mesh *model.Mesh) bool {
	return c.Key.Identity && c.Key.Modules && len(mesh.Telemetry.Metrics) > 0
}

// EgressProxy is where the Sidecar sends traffic to unknown destinations; nil: it sets none.
func (c *Client) EgressProxy() *model.Destination {
	if c.Sidecar == nil {
		return nil
	}
	return c.Sidecar.EgressProxy
}

// UnknownCluster is the cluster for traffic to unknown destinations.
func (c *Client) UnknownCluster(mesh *model.Mesh) string {
	mode := mesh.Outbound
	if c.Sidecar != nil {
		mode = cmp.Or(c.Sidecar.Outbound, mode)
	}
	if mode == model.OutboundRegistryOnly {
		return ir.BlackHoleCluster
	}
	return ir.PassthroughCluster
}

// UnknownMade is the Sidecar, if it decides where traffic to unknown destinations goes.
func (c *Client) UnknownMade() ir.Made {
	if c.Sidecar == nil || c.Sidecar.Outbound == "" && c.Sidecar.EgressProxy == nil {
		return ir.Made{}
	}
	return ir.Made{Origins: model.OriginsOf(c.Sidecar.Key)}
}
