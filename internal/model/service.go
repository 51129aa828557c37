package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Protocol is the application protocol of a port, as Istio names them.
type Protocol string

// The protocols. Auto: Envoy detects the protocol from the first bytes.
const (
	ProtocolAuto    Protocol = "auto"
	ProtocolHTTP    Protocol = "http"
	ProtocolHTTP2   Protocol = "http2"
	ProtocolGRPC    Protocol = "grpc"
	ProtocolGRPCWeb Protocol = "grpc-web"
	ProtocolTCP     Protocol = "tcp"
	ProtocolTLS     Protocol = "tls"
	ProtocolHTTPS   Protocol = "https"
	ProtocolMongo   Protocol = "mongo"
	ProtocolMySQL   Protocol = "mysql"
	ProtocolRedis   Protocol = "redis"
	ProtocolUDP     Protocol = "udp" // never proxied
)

// IsHTTP reports whether requests can be routed individually.
func (p Protocol) IsHTTP() bool {
	switch p {
	case ProtocolHTTP, ProtocolHTTP2, ProtocolGRPC, ProtocolGRPCWeb:
		return true
	}
	return false
}

// IsHTTP2 reports whether upstreams use HTTP/2.
func (p Protocol) IsHTTP2() bool {
	return p == ProtocolHTTP2 || p == ProtocolGRPC || p == ProtocolGRPCWeb
}

// IsTLS reports whether the application encrypts, so that only SNI is readable.
func (p Protocol) IsTLS() bool { return p == ProtocolTLS || p == ProtocolHTTPS }

// Resolution is how a service's endpoints are found.
type Resolution string

// The resolutions, in the words of ServiceEntry.
const (
	ResolutionStatic        Resolution = "STATIC"          // endpoints are known to the control plane; served by EDS
	ResolutionDNS           Resolution = "DNS"             // Envoy resolves names, all addresses are endpoints
	ResolutionDNSRoundRobin Resolution = "DNS_ROUND_ROBIN" // Envoy resolves names, uses the first address of the moment
	ResolutionNone          Resolution = "NONE"            // the client's original destination
	ResolutionDynamicDNS    Resolution = "DYNAMIC_DNS"     // Envoy resolves the request's host; wildcard hosts only
)

// Visibility is exportTo, resolved against the object's namespace.
// The zero value is public.
type Visibility struct {
	Private    bool     // visible only to Namespaces; to none if that is empty ("~")
	Namespaces []string // sorted
	// Public: the object is explicitly visible to all, regardless of the mesh's default.
	Public bool
}

// IsDefault reports whether the object sets nothing, so that the mesh's default applies.
func (v Visibility) IsDefault() bool { return !v.Private && !v.Public }

// VisibilityOf resolves a mesh's default exportTo for an object of namespace ns. An empty list is unset.
func VisibilityOf(exportTo []string, ns string) Visibility {
	if len(exportTo) == 0 || slices.Contains(exportTo, "*") {
		return Visibility{}
	}
	v := Visibility{Private: true}
	for _, e := range exportTo {
		switch e {
		case ".":
			v.Namespaces = append(v.Namespaces, ns)
		case "~":
		default:
			v.Namespaces = append(v.Namespaces, e)
		}
	}
	slices.Sort(v.Namespaces)
	v.Namespaces = slices.Compact(v.Namespaces)
	return v
}

// Equal reports whether the same proxies may use both objects.
func (v Visibility) Equal(o Visibility) bool {
	return v.Private == o.Private && slices.Equal(v.Namespaces, o.Namespaces)
}

// Sees reports whether a proxy of namespace ns may use the object.
func (v Visibility) Sees(ns string) bool {
	if !v.Private {
		return true
	}
	for _, n := range v.Namespaces {
		if n == ns {
			return true
		}
	}
	return false
}

// ServicePort is one port of a service.
type ServicePort struct {
	Name       string
	Number     uint32
	Protocol   Protocol
	TargetPort uint32 // 0: same as Number, or named
	TargetName string // a container port's name, where the target is named
}

// Service is one host name with its ports: a Kubernetes Service, or one host of a
// ServiceEntry (see ServiceEntry.Services).
type Service struct {
	Meta
	Hostname   Host
	Addresses  []netip.Prefix // cluster IPs or ServiceEntry addresses; empty: none
	Auto       []netip.Addr   // of a ServiceEntry without addresses: those that the mesh gives it, IPv4 first
	Ports      []ServicePort
	Resolution Resolution
	Headless   bool              // clusterIP: None, or a ServiceEntry that selects workloads and forwards to the original destination
	External   bool              // MESH_EXTERNAL: no sidecar at the other end
	Selector   map[string]string // workloads of the same namespace; empty: endpoints are given otherwise
	Visibility Visibility

	// ExternalName is the DNS name of a Service of that type.
	ExternalName Host
	// Outside are the addresses and names of its load balancer, then its externalIPs.
	Outside []string
	// Balanced: it requests a load balancer, which may have no addresses yet.
	Balanced bool
	// PublishNotReady keeps endpoints that are not ready.
	PublishNotReady bool
	// NodeLocal: callers use endpoints on their own node only.
	NodeLocal bool
	// Distribution is the service's own; unset: its namespace's applies.
	Distribution Distribution
	// IPv6First selects the address of endpoints that have one of each family.
	IPv6First bool
	// Inline endpoints of a ServiceEntry; nil where endpoints come from slices or workloads.
	Inline []Endpoint
	// SubjectAltNames to verify at upstreams, beside those of its workloads' service accounts.
	SubjectAltNames []string
	// Accounts are further service accounts of its namespace that callers accept.
	Accounts []string
	// Parts are the services of its namespace that have the same host, if there are several. The index of derive sets
	// it, in copies of the first part.
	Parts []*Service
}

// Port returns a port by number; nil: none.
func (s *Service) Port(number uint32) *ServicePort {
	for i := range s.Ports {
		if s.Ports[i].Number == number {
			return &s.Ports[i]
		}
	}
	return nil
}

// IsResolved reports whether Envoy resolves the names of endpoints.
func (s *Service) IsResolved() bool {
	return s.Resolution == ResolutionDNS || s.Resolution == ResolutionDNSRoundRobin
}

// ResolvesHost reports whether the service has no endpoints, so that Envoy resolves its host.
func (s *Service) ResolvesHost() bool {
	return s.IsResolved() && len(s.Inline) == 0 && len(s.Selector) == 0 && !s.Hostname.IsWildcard()
}

// CannotTakeIn returns what keeps the ports of a service with the same host and namespace from being ports of s; empty:
// nothing.
func (s *Service) CannotTakeIn(o *Service) string {
	switch {
	case s.Kind != o.Kind:
		return "kind"
	case s.Resolution != o.Resolution:
		return "spec.resolution"
	case !maps.Equal(s.Labels, o.Labels):
		return "metadata.labels"
	case !maps.Equal(s.Selector, o.Selector):
		return "spec.workloadSelector"
	case !s.Visibility.Equal(o.Visibility):
		return "spec.exportTo"
	}
	return ""
}

// IsKubernetes reports whether the service is a Kubernetes Service.
func (s *Service) IsKubernetes() bool { return s.Kind == KindService }

// Entries are the ServiceEntries that the service, or a part of it, comes from.
func (s *Service) Entries() []Key {
	var out []Key
	for _, p := range append([]*Service{s}, s.Parts...) {
		if p.Kind == KindServiceEntry && !slices.Contains(out, p.Key) {
			out = append(out, p.Key)
		}
	}
	return out
}

// ServiceEntry adds services with its hosts to the mesh.
type ServiceEntry struct {
	Meta
	Hosts []Host
	// Template is the service of each host, without a Hostname.
	Template Service
	// Status are the addresses in its status, in order.
	Status []HostAddress
	// Auto are the addresses that the control plane assigns to hosts, IPv4 first. derive sets it, in copies of the
	// object.
	Auto map[Host][]netip.Addr
}

// Services returns one Service for each host, with the ServiceEntry's Meta.
func (e *ServiceEntry) Services() []*Service {
	out := make([]*Service, 0, len(e.Hosts))
	for _, h := range e.Hosts {
		s := e.Template
		s.Meta = e.Meta
		s.Hostname, s.Auto = h, e.Auto[h]
		out = append(out, &s)
	}
	return out
}

// ParseProtocol decodes a port name ("http-web") or appProtocol. Unknown names are Auto.
func ParseProtocol(s string) Protocol {
	s = strings.ToLower(s)
	switch s {
	case "kubernetes.io/h2c":
		return ProtocolHTTP2
	case "kubernetes.io/ws":
		return ProtocolHTTP
	case "kubernetes.io/wss":
		return ProtocolHTTPS
	}
	if s == "grpc-web" || strings.HasPrefix(s, "grpc-web-") {
		return ProtocolGRPCWeb
	}
	head, _, _ := strings.Cut(s, "-")
	switch p := Protocol(head); p {
	case ProtocolHTTP, ProtocolHTTP2, ProtocolGRPC, ProtocolTCP, ProtocolTLS, ProtocolHTTPS,
		ProtocolMongo, ProtocolMySQL, ProtocolRedis, ProtocolUDP:
		return p
	}
	return ProtocolAuto
}

// Host is a DNS name in lower case, or a wildcard: "*" or "*.suffix".
type Host string

// IsWildcard reports whether h matches more than one name.
func (h Host) IsWildcard() bool { return strings.HasPrefix(string(h), "*") }

// Matches reports whether h matches every name that o matches.
func (h Host) Matches(o Host) bool {
	if !h.IsWildcard() {
		return h == o
	}
	return strings.HasSuffix(string(o), string(h[1:])) && (o.IsWildcard() || len(o) > len(h[1:])) || h == o
}

// Overlaps reports whether a name matches both h and o.
func (h Host) Overlaps(o Host) bool { return h.Matches(o) || o.Matches(h) }

// CompareSpecificity puts the more specific one first: names before wildcards, the longer of two first.
func (h Host) CompareSpecificity(o Host) int {
	wildcard := func(h Host) int {
		if h.IsWildcard() {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(wildcard(h), wildcard(o)), cmp.Compare(len(o), len(h)))
}

// Covering iterates over the patterns that may match h, most specific first: h itself, then "*.suffix" for each suffix,
// then "*".
func (h Host) Covering() []Host {
	out := make([]Host, 0, 1+strings.Count(string(h), ".")+1)
	out = append(out, h)
	rest := strings.TrimPrefix(string(h), "*.")
	if h == "*" {
		return out
	}
	if !h.IsWildcard() {
		rest = string(h)
	}
	for {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			return append(out, "*")
		}
		rest = rest[i+1:]
		out = append(out, Host("*."+rest))
	}
}

// ResolveHost returns the full name of a host in an object of namespace ns. A short name is a service of that namespace
// in the cluster's domain.
func ResolveHost(name, ns, domain string) Host {
	name = strings.ToLower(name)
	if name == "" || strings.Contains(name, ".") || name == "*" {
		return Host(name)
	}
	return Host(name + "." + ns + ".svc." + domain)
}

// LabelAutoAddress with the value "false" excludes a ServiceEntry from automatic addresses.
const LabelAutoAddress = "networking.istio.io/enable-autoallocate-ip"

// AutoAddresses determines the automatic addresses of ServiceEntries without their own.
type AutoAddresses struct {
	// Off: only proxies that request them use them (Proxy.AutoAllocate), and statuses do not contain them.
	Off    bool
	V4, V6 netip.Prefix // ranges of the two families
}

// DefaultAutoAddresses is Istio's default: a part of class E, which is never routed, and the range for benchmarks of RFC 5180.
func DefaultAutoAddresses() AutoAddresses {
	return AutoAddresses{V4: netip.MustParsePrefix("240.240.0.0/16"), V6: netip.MustParsePrefix("2001:2::/48")}
}

// UsedBy reports whether a proxy's applications get such addresses from DNS.
func (a *AutoAddresses) UsedBy(p *Proxy) bool {
	return p.DNSCapture && (!a.Off || p.AutoAllocate) && p.Interception != InterceptNone
}

// Of returns the addresses of the families.
func (f Families) Of(list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return f != DualStack && a.Is6() != (f == IPv6) })
}

// HostAddress is an assigned address of a host of a ServiceEntry.
type HostAddress struct {
	Host    Host
	Address netip.Addr
}

// AutoHosts returns the hosts that get automatic addresses. There are none if the entry has its own, excludes them, or
// forwards to the original destination. A wildcard gets one only if requests contain the actual name.
func (e *ServiceEntry) AutoHosts() []Host {
	t := &e.Template
	if t.Resolution == ResolutionNone || len(t.Addresses) > 0 || strings.EqualFold(e.Labels[LabelAutoAddress], "false") {
		return nil
	}
	if t.Resolution == ResolutionDynamicDNS {
		return e.Hosts
	}
	return slices.DeleteFunc(slices.Clone(e.Hosts), Host.IsWildcard)
}

// Assigned returns a host's first address of a family in the entry's status; invalid: none.
func (e *ServiceEntry) Assigned(h Host, v6 bool) netip.Addr {
	for _, a := range e.Status {
		if a.Host == h && a.Address.Is6() == v6 {
			return a.Address
		}
	}
	return netip.Addr{}
}
