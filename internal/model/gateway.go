package model

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// KindGateway is the kind of Istio's Gateways.
const KindGateway Kind = "Gateway"

// Kinds of the Gateway API. Its Gateways and routes are converted to Istio's.
const (
	KindKubernetesGateway Kind = "KubernetesGateway" // named Gateway in the Gateway API
	KindListenerSet       Kind = "ListenerSet"       // further listeners of a KubernetesGateway
	KindHTTPRoute         Kind = "HTTPRoute"
	KindGRPCRoute         Kind = "GRPCRoute"
	KindTLSRoute          Kind = "TLSRoute"
	KindTCPRoute          Kind = "TCPRoute"
	KindReferenceGrant    Kind = "ReferenceGrant"
	KindGatewayClass      Kind = "GatewayClass" // read for its status only
)

// IsKubernetesRoute reports whether k is a kind of route of the Gateway API.
func (k Kind) IsKubernetesRoute() bool {
	switch k {
	case KindHTTPRoute, KindGRPCRoute, KindTLSRoute, KindTCPRoute:
		return true
	}
	return false
}

// Gateway describes the listeners of routers, and which hosts they serve. As in Istio, it applies to routers of all
// namespaces that its selector selects.
type Gateway struct {
	Meta
	Selector map[string]string // of routers; empty: all
	Servers  []GatewayServer
	// OwnNamespace: it applies to routers of its namespace only, as Gateways of the Gateway API do. A ListenerSet applies to
	// routers of its Gateway's namespace.
	OwnNamespace bool
	// Deployed: its routers are deployed for it, so that Gateways of other namespaces should not share them.
	Deployed bool
	// Reserved are listeners that are not served, because they have no usable certificate for example. They keep their
	// place (see Displaced), and their hosts from wider listeners.
	Reserved []GatewayServer
	// Parent is the Gateway of a ListenerSet; zero for others.
	Parent Key
	// RuleHosts are the hosts of an Ingress's rules; empty for others.
	RuleHosts []Host
	// ClientValidations are how clients of listeners that end TLS are verified, by port, also those of ListenerSets; 0: all
	// other ports. A port without CAs verifies none.
	ClientValidations map[uint32]ClientValidation
	// ClientCertificate is the credential for servers that a BackendTLSPolicy names; empty: none.
	ClientCertificate string
	// ListenerSets are the namespaces whose ListenerSets may add listeners; nil: none.
	ListenerSets *NamespaceSelection
}

// ClientValidation is how certificates of clients are verified.
type ClientValidation struct {
	// CAs are ConfigMaps. The first usable one applies; without a usable one the listener is not served.
	CAs []Key
	// Insecure accepts clients without a certificate, and with one that no CA signed, unless the listener has a mode of its
	// own.
	Insecure bool
	// Required is set if certificates are verified.
	Required bool
}

// ValidationAt returns how clients of a listener of the Gateway or of its ListenerSets are verified; false: they are not.
func (g *Gateway) ValidationAt(s *GatewayServer) (ClientValidation, bool) {
	if !s.TLS.EndsTLS() || s.TLS.Mode == ServerIstioMutual {
		return ClientValidation{}, false
	}
	v, ok := g.ClientValidations[s.Port.Number]
	if !ok {
		v = g.ClientValidations[0]
	}
	return v, v.Required
}

// Verifying returns the TLS of a listener that verifies clients; nil: no CA is usable. usable reports whether the Gateway
// may refer to a ConfigMap, and whether it has CAs. The listener's own mode only makes the Gateway's rule stricter: in Istio,
// OPTIONAL_MUTUAL also lets clients in without a certificate where the Gateway API requires one.
func (v ClientValidation) Verifying(t *ServerTLS, usable func(Key) bool) *ServerTLS {
	i := slices.IndexFunc(v.CAs, usable)
	if i < 0 {
		return nil
	}
	out := *t
	switch {
	case !v.Insecure || t.Mode == ServerMutual:
		out.Mode = ServerMutual
	case t.Mode == ServerOptionalMutual:
	default:
		out.Mode, out.AcceptUntrusted = ServerOptionalMutual, true
	}
	out.CACredentialName = schemeConfigMap + v.CAs[i].Namespace + "/" + v.CAs[i].Name
	return &out
}

// NamespaceSelection is a choice of namespaces: all, one by name, or those that a selector selects.
type NamespaceSelection struct {
	Namespace string         // "*": all; empty: those of Selector
	Selector  *LabelSelector // nil: none
}

// GatewayServer is one port, for some hosts.
type GatewayServer struct {
	Name  string // in statistics; empty: none
	Port  GatewayPort
	Bind  string         // an IP address; empty: any
	Hosts []HostSelector // Namespace is that of accepted VirtualServices; "*": any
	// Namespaces selects further namespaces, by labels, whose routes are accepted for the first of Hosts; nil: none.
	Namespaces *LabelSelector
	TLS        *ServerTLS // nil: plain text
	// Routes are the kinds of routes that may attach; nil: VirtualServices.
	Routes []Kind
	// HTTPSRedirect redirects plain HTTP requests to https.
	HTTPSRedirect bool
}

// GatewayPort is a port as clients know it. Routers listen on the target port of their Service.
type GatewayPort struct {
	Number   uint32
	Name     string
	Protocol Protocol
}

// ServerTLSMode is how a server handles TLS connections.
type ServerTLSMode string

// The modes, with Istio's names.
const (
	ServerPassthrough     ServerTLSMode = "PASSTHROUGH"      // forwarded unchanged, by SNI
	ServerAutoPassthrough ServerTLSMode = "AUTO_PASSTHROUGH" // forwarded unchanged, to the cluster in SNI
	ServerSimple          ServerTLSMode = "SIMPLE"           // terminated
	ServerMutual          ServerTLSMode = "MUTUAL"           // terminated, with a client certificate
	ServerOptionalMutual  ServerTLSMode = "OPTIONAL_MUTUAL"  // terminated, with an optional client certificate
	ServerIstioMutual     ServerTLSMode = "ISTIO_MUTUAL"     // terminated, with the mesh's certificates
)

// ServerTLS describes TLS of a server. Certificates are in Secrets, else in files of the proxy.
type ServerTLS struct {
	Mode            ServerTLSMode
	CredentialNames []string // those of other namespaces, as kubernetes://NAMESPACE/NAME, need a ReferenceGrant
	MeshCertificate bool     // the proxy's certificate of the mesh is the server's; not for ServerIstioMutual, which implies it
	// CACredentialName is a Secret or ConfigMap with CAs for client certificates; empty: those of the first credential.
	CACredentialName string
	Certificates     []CertificateFiles
	CACertificates   string // a file
	CRL              string // a file
	SubjectAltNames  []string
	SPKI, Hashes     []string // of client certificates, in Envoy's forms
	MinVersion       string   // "TLSv1_2"; empty: Envoy's default
	MaxVersion       string
	CipherSuites     []string
	ECDHCurves       []string // the mesh's default; empty: Envoy's
	// InsecureSkipVerify accepts any client certificate.
	InsecureSkipVerify bool
	// AcceptUntrusted accepts client certificates that fail verification, too.
	AcceptUntrusted bool
}

// CertificateFiles are a certificate and its key.
type CertificateFiles struct{ Certificate, PrivateKey string }

// EndsTLS reports whether connections are decrypted.
func (t *ServerTLS) EndsTLS() bool {
	return t != nil && t.Mode != ServerPassthrough && t.Mode != ServerAutoPassthrough
}

// AsksClients reports whether clients are asked for certificates.
func (t *ServerTLS) AsksClients() bool {
	return t.Mode == ServerMutual || t.Mode == ServerOptionalMutual || t.Mode == ServerIstioMutual
}

// IsHTTP reports whether the server handles HTTP.
func (s *GatewayServer) IsHTTP() bool {
	return s.Port.Protocol.IsHTTP() || s.Port.Protocol == ProtocolHTTPS && s.TLS.EndsTLS()
}

// TakesTLS reports whether the server expects TLS, which it ends or passes on.
func (s *GatewayServer) TakesTLS() bool { return s.TLS != nil || s.Port.Protocol.IsTLS() }

// HostsFor returns the hosts that VirtualServices of a namespace may have.
func (s *GatewayServer) HostsFor(namespace string) []Host {
	var out []Host
	for _, h := range s.Hosts {
		if h.Namespace == "*" || h.Namespace == namespace {
			out = append(out, h.Host)
		}
	}
	return out
}

// FullName returns the name that VirtualServices use.
func (g *Gateway) FullName() string { return g.listenerName("", 0) }

// IsKubernetes reports whether it is a Gateway or a ListenerSet of the Gateway API.
func (g *Gateway) IsKubernetes() bool {
	return g.Kind == KindKubernetesGateway || g.Kind == KindListenerSet
}

// listenerName returns the name of a listener of the Gateway API; of the whole Gateway if the listener is empty.
func (g *Gateway) listenerName(listener string, port uint32) string {
	switch g.Kind {
	case KindKubernetesGateway:
		return KubernetesGatewayName(g.Namespace, g.Name, listener, port)
	case KindListenerSet:
		return ListenerSetName(g.Namespace, g.Name, listener, port)
	case KindIngress:
		return IngressGatewayName(g.Namespace, g.Name)
	}
	return g.Namespace + "/" + g.Name
}

// KubernetesGatewayName returns the name that routes use for a Gateway of the Gateway API, or for its listeners with a
// name or a port; 0: any.
func KubernetesGatewayName(namespace, name, listener string, port uint32) string {
	return listenerName("kubernetes/"+namespace+"/"+name, listener, port)
}

// ListenerSetName returns the name that routes use for a ListenerSet, or for its listeners with a name or a port; 0: any.
func ListenerSetName(namespace, name, listener string, port uint32) string {
	return listenerName("listenerset/"+namespace+"/"+name, listener, port)
}

func listenerName(out, listener string, port uint32) string {
	if listener != "" {
		out += "/" + listener
	}
	if port != 0 {
		out += ":" + strconv.FormatUint(uint64(port), 10)
	}
	return out
}

// IsParent reports whether a name that a route uses (KubernetesGatewayName) is of the Gateway, or of one of its listeners,
// which need not exist.
func (g *Gateway) IsParent(name string) bool {
	rest, ok := strings.CutPrefix(name, g.FullName())
	return ok && (rest == "" || g.IsKubernetes() && (rest[0] == '/' || rest[0] == ':'))
}

// Takes reports whether routes of a kind may attach.
func (s *GatewayServer) Takes(kind Kind) bool {
	if s.Routes == nil {
		return kind == KindVirtualService || kind == KindIngress
	}
	return slices.Contains(s.Routes, kind)
}

// ServerNames returns the names by which routes attach to a server.
func (g *Gateway) ServerNames(s *GatewayServer) []string {
	if g.IsKubernetes() {
		name, port := s.Port.Name, s.Port.Number
		return []string{g.FullName(), g.listenerName(name, 0), g.listenerName("", port), g.listenerName(name, port)}
	}
	out := []string{g.FullName()}
	if g.Kind != KindIngress || s.TLS == nil { // at the port of plain text each Ingress has a server
		return out
	}
	hosts := s.AllHosts()
	for _, h := range hosts {
		out = append(out, IngressHostName(h))
	}
	for _, h := range g.RuleHosts {
		overlaps := func(o Host) bool { return o.Matches(h) || h.Matches(o) }
		if name := IngressHostName(h); slices.ContainsFunc(hosts, overlaps) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// RouteName returns the Gateway's part in names of route configurations, as in Istio.
func (g *Gateway) RouteName() string {
	switch g.Kind {
	case KindKubernetesGateway:
		return g.Name + "-istio-autogenerated-k8s-gateway"
	case KindListenerSet:
		return g.Name + "-istio-autogenerated-k8s-listenerset"
	case KindIngress:
		return g.Name + "-istio-autogenerated-k8s-ingress-" + g.Namespace
	}
	return g.Name
}

// SelectorLabels implements Selecting.
func (g *Gateway) SelectorLabels() map[string]string { return g.Selector }

// ShapesOutbound implements Selecting. All labels of routers distinguish them.
func (g *Gateway) ShapesOutbound() bool { return false }

// CACredential returns the name of the Secret with CAs for client certificates; empty: none.
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

// Credentials returns the Secrets that a proxy of a namespace needs for a server. With each Secret that has CAs it
// returns the one that takes precedence if it exists.
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

// Credentials returns the Secrets that routers of a namespace need. Of the Gateway API's Gateways it leaves out those of
// other namespaces (SecretsElsewhere).
func (g *Gateway) Credentials(namespace string) []NeededSecret {
	var out []NeededSecret
	for i := range g.Servers {
		for _, need := range g.Servers[i].TLS.Credentials(namespace) {
			if !g.IsKubernetes() || need.Kind != KindSecret || need.Namespace == g.Namespace {
				out = append(out, need)
			}
		}
	}
	if c, ok := ParseCredential(g.ClientCertificate); ok {
		if key, own := c.In(g.Namespace); own {
			out = append(out, NeededSecret{key, true})
		}
	}
	for _, ca := range g.clientCAs() {
		if ca.Namespace == g.Namespace {
			out = append(out, NeededSecret{ca, false})
		}
	}
	return out
}

// clientCAs lists the ConfigMaps that verify clients, in the order of ports.
func (g *Gateway) clientCAs() []Key {
	var out []Key
	for _, port := range slices.Sorted(maps.Keys(g.ClientValidations)) {
		out = append(out, g.ClientValidations[port].CAs...)
	}
	return out
}

// CAResource returns the SDS name of the CAs for client certificates.
func (t *ServerTLS) CAResource() string {
	ca := t.CACredential()
	if !IsConfigMap(ca) {
		ca = strings.TrimSuffix(ca, SuffixCA)
	}
	return CredentialURL(ca) + SuffixCA
}

// CommonHosts returns the hosts that two lists have in common: the narrower one of each overlapping pair.
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

// PortText returns the port's number.
func (s *GatewayServer) PortText() string { return strconv.FormatUint(uint64(s.Port.Number), 10) }

// AllHosts returns the server's hosts without their namespaces. It may contain duplicates.
func (s *GatewayServer) AllHosts() []Host {
	out := make([]Host, 0, len(s.Hosts))
	for _, h := range s.Hosts {
		out = append(out, h.Host)
	}
	return out
}

// Admit returns the server with the routes of further namespaces.
func (s *GatewayServer) Admit(namespaces []string) *GatewayServer {
	out := *s
	out.Hosts = slices.Clone(s.Hosts)
	for _, ns := range namespaces {
		out.Hosts = append(out.Hosts, HostSelector{Namespace: ns, Host: s.Hosts[0].Host})
	}
	return &out
}

// NeedsGrant returns the Secret of a credential if it is in another namespace than the Gateway or ListenerSet, so that a
// ReferenceGrant must allow the reference; else false. Istio's Gateways have no such credentials.
func (g *Gateway) NeedsGrant(credential string) (Key, bool) {
	k, elsewhere := g.elsewhere(credential)
	return k, elsewhere && k.Namespace != g.Namespace
}

// elsewhere returns the Secret of a credential if its name has a namespace: it is not in the routers' namespace, or not in
// the ListenerSet's.
func (g *Gateway) elsewhere(credential string) (Key, bool) {
	c, ok := ParseCredential(credential)
	if !ok || !g.IsKubernetes() || c.Kind != KindSecret || c.Namespace == "" || c.Namespace == g.Namespace && g.Parent.Name == "" {
		return Key{}, false
	}
	return c.Key(), true
}

// SecretsElsewhere returns the Secrets that servers name with their namespace, a certificate for backends, and ConfigMaps
// with CAs of clients. granted reports whether a ReferenceGrant
// allows one of another namespace than the Gateway's or ListenerSet's.
func (g *Gateway) SecretsElsewhere(granted func(Key) bool) []Key {
	var out []Key
	for i := range g.Servers {
		if t := g.Servers[i].TLS; t.EndsTLS() {
			for _, name := range t.CredentialNames {
				if k, ok := g.elsewhere(name); ok && (k.Namespace == g.Namespace || granted(k)) {
					out = append(out, k)
				}
			}
		}
	}
	if k, needs := g.NeedsGrant(g.ClientCertificate); needs && granted(k) {
		out = append(out, k)
	}
	for _, ca := range g.clientCAs() {
		if ca.Namespace != g.Namespace && granted(ca) {
			out = append(out, ca)
		}
	}
	return out
}

// GrantFrom returns how ReferenceGrants refer to the Gateway.
func (g *Gateway) GrantFrom() GrantFrom {
	kind := "Gateway"
	if g.Kind == KindListenerSet {
		kind = string(KindListenerSet)
	}
	return GrantFrom{Kind: kind, Namespace: g.Namespace}
}

// ReferenceGrant allows objects of other namespaces to refer to objects of its own.
type ReferenceGrant struct {
	Meta
	From []GrantFrom
	To   []GrantTo
}

// GrantFrom are the objects of a kind in a namespace.
type GrantFrom struct{ Kind, Namespace string }

// GrantTo are the objects of a kind; an empty name: all.
type GrantTo struct{ Kind, Name string }

// Allows reports whether an object of a kind and namespace may refer to an object in the grant's namespace.
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

// BackendTLSPolicy makes clients of Services and ServiceEntries use TLS, and determines the certificates that they accept.
type BackendTLSPolicy struct {
	Meta
	Targets []BackendTarget
	// CAs are ConfigMaps. The first valid one applies; without a valid one there is no connection.
	CAs    []Key
	System bool // the CAs of the proxy's system apply instead
	SNI    string
	// SubjectAltNames are accepted instead of SNI; empty: SNI is.
	SubjectAltNames []string
}

// BackendTarget is a Service or ServiceEntry of the policy's namespace, or one of its ports by name.
type BackendTarget struct {
	Host  Host   // of a Service; empty for a ServiceEntry
	Entry string // the name of a ServiceEntry, whose hosts are all meant; empty for a Service
	Port  string // empty: the ports that no other policy names
}

// isFor reports whether a service is, or has a part that is, what the target names in its namespace.
func (t BackendTarget) isFor(svc *Service) bool {
	if t.Entry == "" {
		return svc.IsKubernetes() && t.Host == svc.Hostname
	}
	return slices.Contains(svc.Entries(), Key{Kind: KindServiceEntry, Namespace: svc.Namespace, Name: t.Entry})
}

// BackendTLSFor returns the policy of a service's port: the first that names the port, else the first for the whole
// service. list is sorted by age, oldest first.
func BackendTLSFor(list []*BackendTLSPolicy, svc *Service, port string) *BackendTLSPolicy {
	for _, name := range []string{port, ""} {
		for _, p := range list {
			if p.Namespace == svc.Namespace && slices.ContainsFunc(p.Targets, func(t BackendTarget) bool { return t.Port == name && t.isFor(svc) }) {
				return p
			}
		}
	}
	return nil
}

// ClientTLS returns the TLS settings of clients. usable reports whether a ConfigMap has CAs.
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

// Credentials returns the ConfigMaps with its CAs.
func (p *BackendTLSPolicy) Credentials() []NeededSecret {
	var out []NeededSecret
	for _, k := range p.CAs {
		out = append(out, NeededSecret{Key: k})
	}
	return out
}
