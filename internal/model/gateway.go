package model

import (
	"slices"
	"strconv"
	"strings"
)

// KindGateway is the kind of Istio's Gateways.
const KindGateway Kind = "Gateway"

// The kinds of the Gateway API. Its Gateways and routes become what Istio's are.
const (
	KindKubernetesGateway Kind = "KubernetesGateway" // called Gateway there
	KindHTTPRoute         Kind = "HTTPRoute"
	KindGRPCRoute         Kind = "GRPCRoute"
	KindTLSRoute          Kind = "TLSRoute"
	KindTCPRoute          Kind = "TCPRoute"
	KindReferenceGrant    Kind = "ReferenceGrant"
	KindGatewayClass      Kind = "GatewayClass" // read for its status alone
)

// IsKubernetesRoute tells whether it is a kind of the Gateway API's routes.
func (k Kind) IsKubernetesRoute() bool {
	switch k {
	case KindHTTPRoute, KindGRPCRoute, KindTLSRoute, KindTCPRoute:
		return true
	}
	return false
}

// Gateway has proxies of type router listen, and says who may be reached there. It counts for
// routers of every namespace that its selector selects, as in Istio.
type Gateway struct {
	Meta
	Selector map[string]string // of routers; empty: all
	Servers  []GatewayServer
	// OwnNamespace: it counts for routers of its namespace alone, as those of the Gateway API.
	OwnNamespace bool
}

// GatewayServer is one port, for some hosts.
type GatewayServer struct {
	Name  string // of its statistics; empty: none
	Port  GatewayPort
	Bind  string         // an IP address; empty: any
	Hosts []HostSelector // Namespace is of the VirtualServices that count; "*": any
	// Namespaces selects, by their labels, namespaces whose routes count, too, for the first of Hosts; nil: none.
	Namespaces *LabelSelector
	TLS        *ServerTLS // nil: plain text
	// Routes are the kinds that may be bound to it; nil: VirtualServices.
	Routes []Kind
	// HTTPSRedirect has requests in plain text redirected to https.
	HTTPSRedirect bool
}

// GatewayPort is a port as clients know it: routers listen on the target port that their Service
// has for it.
type GatewayPort struct {
	Number   uint32
	Name     string
	Protocol Protocol
}

// ServerTLSMode says what becomes of TLS connections.
type ServerTLSMode string

// The modes, by Istio's names.
const (
	ServerPassthrough     ServerTLSMode = "PASSTHROUGH"      // goes on as it is, by SNI
	ServerAutoPassthrough ServerTLSMode = "AUTO_PASSTHROUGH" // likewise, to the cluster that SNI names
	ServerSimple          ServerTLSMode = "SIMPLE"           // ends here
	ServerMutual          ServerTLSMode = "MUTUAL"           // likewise; clients show a certificate
	ServerOptionalMutual  ServerTLSMode = "OPTIONAL_MUTUAL"  // likewise, if they have one
	ServerIstioMutual     ServerTLSMode = "ISTIO_MUTUAL"     // with the mesh's certificates
)

// ServerTLS is how a server treats TLS connections. Certificates are of Secrets, else of files of the
// proxy.
type ServerTLS struct {
	Mode            ServerTLSMode
	CredentialNames []string // those of other namespaces, as kubernetes://NAMESPACE/NAME, are for who is granted them
	// CACredentialName is of a Secret or ConfigMap with the CAs of clients; empty: those of the first
	// credential.
	CACredentialName string
	Certificates     []CertificateFiles
	CACertificates   string // a file
	CRL              string // a file
	SubjectAltNames  []string
	SPKI, Hashes     []string // of the clients' certificates, as Envoy has them
	MinVersion       string   // "TLSv1_2"; empty: Envoy's default
	MaxVersion       string
	CipherSuites     []string
	ECDHCurves       []string // the mesh's default; empty: Envoy's
	// InsecureSkipVerify takes any certificate of clients.
	InsecureSkipVerify bool
}

// CertificateFiles are a certificate and its key.
type CertificateFiles struct{ Certificate, PrivateKey string }

// EndsTLS tells whether connections are decrypted.
func (t *ServerTLS) EndsTLS() bool {
	return t != nil && t.Mode != ServerPassthrough && t.Mode != ServerAutoPassthrough
}

// AsksClients tells whether clients are asked for certificates.
func (t *ServerTLS) AsksClients() bool {
	return t.Mode == ServerMutual || t.Mode == ServerOptionalMutual || t.Mode == ServerIstioMutual
}

// IsHTTP tells whether the server reads requests.
func (s *GatewayServer) IsHTTP() bool {
	return s.Port.Protocol.IsHTTP() || s.Port.Protocol == ProtocolHTTPS && s.TLS.EndsTLS()
}

// HostsFor are the hosts that VirtualServices of a namespace may have there.
func (s *GatewayServer) HostsFor(namespace string) []Host {
	var out []Host
	for _, h := range s.Hosts {
		if h.Namespace == "*" || h.Namespace == namespace {
			out = append(out, h.Host)
		}
	}
	return out
}

// FullName is how VirtualServices call it.
func (g *Gateway) FullName() string {
	if g.Kind == KindKubernetesGateway {
		return KubernetesGatewayName(g.Namespace, g.Name, "", 0)
	}
	return g.Namespace + "/" + g.Name
}

// KubernetesGatewayName is how routes call a Gateway of the Gateway API, or those of its listeners
// that have a name, or a port; 0: any.
func KubernetesGatewayName(namespace, name, listener string, port uint32) string {
	out := "kubernetes/" + namespace + "/" + name
	if listener != "" {
		out += "/" + listener
	}
	if port != 0 {
		out += ":" + strconv.FormatUint(uint64(port), 10)
	}
	return out
}

// Takes tells whether objects of a kind may be bound to it.
func (s *GatewayServer) Takes(kind Kind) bool {
	if s.Routes == nil {
		return kind == KindVirtualService
	}
	return slices.Contains(s.Routes, kind)
}

// ServerNames are the names by which routes are bound to a server.
func (g *Gateway) ServerNames(s *GatewayServer) []string {
	if g.Kind == KindKubernetesGateway {
		return []string{
			g.FullName(), KubernetesGatewayName(g.Namespace, g.Name, s.Port.Name, 0),
			KubernetesGatewayName(g.Namespace, g.Name, "", s.Port.Number), KubernetesGatewayName(g.Namespace, g.Name, s.Port.Name, s.Port.Number),
		}
	}
	return []string{g.FullName()}
}

// RouteName is its part of the names of route configurations: Istio's.
func (g *Gateway) RouteName() string {
	if g.Kind == KindKubernetesGateway {
		return g.Name + "-istio-autogenerated-k8s-gateway"
	}
	return g.Name
}

// SelectorLabels implements Selecting.
func (g *Gateway) SelectorLabels() map[string]string { return g.Selector }

// ShapesOutbound implements Selecting. Routers are told apart by all of their labels.
func (g *Gateway) ShapesOutbound() bool { return false }

// CACredential is the name of the Secret with the CAs of clients; empty: there is none.
func (t *ServerTLS) CACredential() string {
	switch {
	case t.Mode != ServerMutual && t.Mode != ServerOptionalMutual || t.InsecureSkipVerify:
		return ""
	case t.CACredentialName != "":
		return t.CACredentialName
	case len(t.CredentialNames) > 0:
		return t.CredentialNames[0]
	}
	return ""
}

// Credentials are the Secrets that a proxy of a namespace needs for a server: with each that has
// CAs the one that takes precedence where it exists.
func (t *ServerTLS) Credentials(namespace string) []NeededSecret {
	if t == nil {
		return nil
	}
	var out []NeededSecret
	add := func(name string, privateKey bool) {
		if c, ok := ParseCredential(name); ok {
			if key, own := c.In(namespace); own {
				out = append(out, NeededSecret{key, privateKey})
			}
		}
	}
	for _, name := range t.CredentialNames {
		add(name, true)
	}
	if ca := t.CACredential(); IsConfigMap(ca) {
		add(ca, false)
	} else if ca != "" {
		add(ca, false)
		add(strings.TrimSuffix(ca, SuffixCA)+SuffixCA, false)
	}
	return out
}

// Credentials are the Secrets that routers of a namespace need.
func (g *Gateway) Credentials(namespace string) []NeededSecret {
	var out []NeededSecret
	for i := range g.Servers {
		out = append(out, g.Servers[i].TLS.Credentials(namespace)...)
	}
	return out
}

// CAResource is how SDS calls the CAs of clients.
func (t *ServerTLS) CAResource() string {
	ca := t.CACredential()
	if !IsConfigMap(ca) {
		ca = strings.TrimSuffix(ca, SuffixCA)
	}
	return CredentialURL(ca) + SuffixCA
}

// Conflict tells why two servers cannot share a port and an address; "": they can. Requests in
// plain text can with such, and TLS with TLS for other hosts.
func (s *GatewayServer) Conflict(o *GatewayServer) string {
	switch {
	case (s.TLS == nil) != (o.TLS == nil):
		return "one of the two is TLS, the other is not"
	case s.TLS == nil && (!s.IsHTTP() || !o.IsHTTP()):
		return "connections cannot be told apart"
	case s.TLS == nil:
		return ""
	}
	for _, a := range s.Hosts {
		for _, b := range o.Hosts {
			if a.Host == b.Host {
				return "both are for " + string(a.Host)
			}
		}
	}
	return ""
}

// CommonHosts are the hosts that two lists have in common: of each pair that overlaps the
// narrower one.
func CommonHosts(a, b []Host) []Host {
	var out []Host
	for _, x := range a {
		for _, y := range b {
			h := x
			if x.Matches(y) {
				h = y
			} else if !y.Matches(x) {
				continue
			}
			if !containsHost(out, h) {
				out = append(out, h)
			}
		}
	}
	return out
}

func containsHost(list []Host, h Host) bool {
	for _, v := range list {
		if v == h {
			return true
		}
	}
	return false
}

// PortText is the port's number.
func (s *GatewayServer) PortText() string { return strconv.FormatUint(uint64(s.Port.Number), 10) }

// AllHosts are the server's hosts, for whichever namespace; each may be there more than once.
func (s *GatewayServer) AllHosts() []Host {
	out := make([]Host, 0, len(s.Hosts))
	for _, h := range s.Hosts {
		out = append(out, h.Host)
	}
	return out
}

// Admit is the server with the routes of some namespaces, too.
func (s *GatewayServer) Admit(namespaces []string) *GatewayServer {
	out := *s
	out.Hosts = slices.Clone(s.Hosts)
	for _, ns := range namespaces {
		out.Hosts = append(out.Hosts, HostSelector{Namespace: ns, Host: s.Hosts[0].Host})
	}
	return &out
}

// NeedsGrant is the Secret that a server names by a credential, where it is of another namespace, so that a
// ReferenceGrant there has to let Gateways refer to it; false: it is not. Istio's Gateways cannot have such.
func (g *Gateway) NeedsGrant(credential string) (Key, bool) {
	c, ok := ParseCredential(credential)
	if !ok || g.Kind != KindKubernetesGateway || c.Kind != KindSecret || c.Namespace == "" || c.Namespace == g.Namespace {
		return Key{}, false
	}
	return c.Key(), true
}

// GrantsNeeded are the Secrets of other namespaces that a Gateway's servers name.
func (g *Gateway) GrantsNeeded() []Key {
	var out []Key
	for i := range g.Servers {
		if t := g.Servers[i].TLS; t.EndsTLS() {
			for _, name := range t.CredentialNames {
				if k, ok := g.NeedsGrant(name); ok {
					out = append(out, k)
				}
			}
		}
	}
	return out
}

// GrantFrom is how ReferenceGrants call it.
func (g *Gateway) GrantFrom() GrantFrom {
	return GrantFrom{Kind: "Gateway", Namespace: g.Namespace}
}

// ReferenceGrant lets objects of other namespaces refer to some of its own.
type ReferenceGrant struct {
	Meta
	From []GrantFrom
	To   []GrantTo
}

// GrantFrom are the objects of a kind in a namespace.
type GrantFrom struct{ Kind, Namespace string }

// GrantTo are the objects of a kind; an empty name: all.
type GrantTo struct{ Kind, Name string }

// Allows tells whether an object of a kind and namespace may refer to one of the grant's.
func (g *ReferenceGrant) Allows(from GrantFrom, to GrantTo) bool {
	return containsGrant(g.From, from) && (containsGrant(g.To, to) || containsGrant(g.To, GrantTo{Kind: to.Kind}))
}

func containsGrant[T comparable](list []T, v T) bool {
	for _, o := range list {
		if o == v {
			return true
		}
	}
	return false
}

// SelectorLabels implements Selecting: it is about a namespace.
func (g *ReferenceGrant) SelectorLabels() map[string]string { return nil }

// ShapesOutbound implements Selecting.
func (g *ReferenceGrant) ShapesOutbound() bool { return false }

// KindBackendTLSPolicy is a kind of the Gateway API.
const KindBackendTLSPolicy Kind = "BackendTLSPolicy"

// BackendTLSPolicy has all who call Services speak TLS to them, and says whose certificates they take.
type BackendTLSPolicy struct {
	Meta
	Targets []BackendTarget
	// CAs are ConfigMaps, of which the first that can be used counts: where none can, no connection is made.
	CAs    []Key
	System bool // the CAs of the proxy's system count in place of these
	SNI    string
	// SubjectAltNames are taken in place of SNI; empty: SNI is.
	SubjectAltNames []string
}

// BackendTarget is a Service of the policy's namespace, or one of its ports by name.
type BackendTarget struct {
	Host Host
	Port string // empty: the ports that no other policy names
}

// BackendTLSFor is the policy that counts for a port of a Service: of those that name it the first, else of those
// for the whole Service. list has the oldest first.
func BackendTLSFor(list []*BackendTLSPolicy, svc *Service, port string) *BackendTLSPolicy {
	for _, t := range []BackendTarget{{svc.Hostname, port}, {svc.Hostname, ""}} {
		for _, p := range list {
			if p.Namespace == svc.Namespace && slices.Contains(p.Targets, t) {
				return p
			}
		}
	}
	return nil
}

// ClientTLS is how who calls secures connections; usable tells whether a ConfigMap has CAs.
func (p *BackendTLSPolicy) ClientTLS(usable func(Key) bool) *ClientTLS {
	out := &ClientTLS{Mode: TLSSimple, SNI: p.SNI, SubjectAltNames: p.SubjectAltNames}
	if len(out.SubjectAltNames) == 0 {
		out.SubjectAltNames = []string{p.SNI}
	}
	if p.System {
		return out
	}
	out.CredentialName = NoCredential(p.Key)
	if i := slices.IndexFunc(p.CAs, usable); i >= 0 {
		out.CredentialName = schemeConfigMap + p.CAs[i].Namespace + "/" + p.CAs[i].Name
	}
	return out
}

// Credentials are the ConfigMaps that have CAs for it.
func (p *BackendTLSPolicy) Credentials() []NeededSecret {
	var out []NeededSecret
	for _, k := range p.CAs {
		out = append(out, NeededSecret{Key: k})
	}
	return out
}
