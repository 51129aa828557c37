package gatewayapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Names by which the mesh's part in the Gateway API goes, in statuses and GatewayClasses.
const (
	ControllerMoonsail = "moonsail.dev/gateway-controller"
	ControllerIstio    = "istio.io/gateway-controller"  // of the class istio, as Istio calls itself
	ControllerMesh     = "moonsail.dev/mesh-controller" // of routes of Services and ServiceEntries
)

// Refs are the references of an object of the Gateway API that its status reports on, valid or not. The model object
// leaves out references without effect. One of the four fields is set.
type Refs struct {
	Class   *ClassRef
	Gateway *GatewayRef
	Route   *RouteRef
	Policy  *PolicyRef
}

// ClassRef is of a GatewayClass of ours.
type ClassRef struct {
	Controller string
	Counts     bool // Gateways of its name count
}

// GatewayRef is of a Gateway of a class of ours, or of a ListenerSet of any Gateway.
type GatewayRef struct {
	Controller string    // empty for a ListenerSet: its Gateway's
	Parent     model.Key // the Gateway of a ListenerSet; zero for others
	Listeners  []ListenerRef
	// ListenerSets are the namespaces whose ListenerSets may add listeners; nil: none.
	ListenerSets *model.NamespaceSelection
	// Validations are how clients of listeners that end TLS are verified, by port; 0: all other ports.
	Validations map[uint32]ValidationRef
	// ClientCertificate is the certificate for backends; nil: none.
	ClientCertificate *ObjectRef
}

// ValidationRef is how clients are verified. It is zero for a port where they are not.
type ValidationRef struct {
	CAs      []ObjectRef
	Required bool
	Insecure bool // clients with other certificates, or without one, are accepted too
}

// ValidationAt returns how clients of a listener are verified; false: they are not.
func (g *GatewayRef) ValidationAt(l *ListenerRef) (ValidationRef, bool) {
	if !protocols[gatewayv1.ProtocolType(l.Protocol)].IsTLS() || l.Passes() || l.Terminate == string(model.ServerIstioMutual) {
		return ValidationRef{}, false
	}
	v, ok := g.Validations[l.Port]
	if !ok {
		v = g.Validations[0]
	}
	return v, v.Required
}

// ListenerRef is one listener.
type ListenerRef struct {
	Name         string
	Port         uint32
	Protocol     string
	Hostname     model.Host           // "*": any
	From         string               // of allowedRoutes.namespaces
	Namespaces   *model.LabelSelector // of From Selector; nil: there is none
	Kinds        []ObjectRef
	TLSMode      string // empty: no tls
	Terminate    string // how TLS ends, of Istio's option: one of terminateModes if it is valid; empty: SIMPLE
	Certificates []ObjectRef
}

// RouteRef is of a route of any kind.
type RouteRef struct {
	Parents   []ParentRef
	Hostnames []model.Host // only "*": it names none
	Backends  []ObjectRef
}

// ParentRef is one parent of a route.
type ParentRef struct {
	ObjectRef
	Section string          // empty: any
	Ref     json.RawMessage // as it is written
}

// GatewayName returns the name by which model.VirtualService.Gateways names the listeners of the parent, a Gateway or a
// ListenerSet.
func (p *ParentRef) GatewayName() string {
	if p.IsListenerSet() {
		return model.ListenerSetName(p.Namespace, p.Name, p.Section, p.Port)
	}
	return model.KubernetesGatewayName(p.Namespace, p.Name, p.Section, p.Port)
}

// PolicyRef is of a BackendTLSPolicy.
type PolicyRef struct {
	Targets      []ParentRef // with the names of ports as sections
	Certificates []ObjectRef // of CAs
	WellKnown    string      // CAs that need no reference; empty: none are named
	Ignored      bool        // see AnnotationIgnorePolicy
}

// ObjectRef names an object, or a kind; what is left out has been put in. Group is empty for Kubernetes'
// core.
type ObjectRef struct {
	Field                        string
	Group, Kind, Namespace, Name string
	Port                         uint32 // 0: none
}

// HasRefs reports whether objects of a kind have one.
func HasRefs(kind model.Kind) bool {
	switch kind {
	case model.KindGatewayClass, model.KindKubernetesGateway, model.KindListenerSet, model.KindBackendTLSPolicy:
		return true
	}
	return kind.IsKubernetesRoute()
}

// RefsOf reads the JSON of an API server. It returns nil where the mesh has no part in the object's status.
func RefsOf(kind model.Kind, raw []byte) *Refs {
	switch kind {
	case model.KindGatewayClass:
		return readRefs(raw, classRef)
	case model.KindKubernetesGateway:
		return readRefs(raw, gatewayRef)
	case model.KindListenerSet:
		return readRefs(raw, func(o *gatewayv1.ListenerSet) *Refs { return &Refs{Gateway: listenerSetRefs(o)} })
	case model.KindHTTPRoute:
		return readRefs(raw, func(o *gatewayv1.HTTPRoute) *Refs {
			return routeRef(o.Namespace, o.Spec.ParentRefs, o.Spec.Hostnames, httpBackends(o.Namespace, o.Spec.Rules))
		})
	case model.KindGRPCRoute:
		return readRefs(raw, func(o *gatewayv1.GRPCRoute) *Refs {
			return routeRef(o.Namespace, o.Spec.ParentRefs, o.Spec.Hostnames, httpBackends(o.Namespace, grpcRules(o.Spec.Rules)))
		})
	case model.KindTLSRoute:
		return readRefs(raw, func(o *gatewayv1.TLSRoute) *Refs {
			return routeRef(o.Namespace, o.Spec.ParentRefs, o.Spec.Hostnames, httpBackends(o.Namespace, tlsRules(o.Spec.Rules)))
		})
	case model.KindTCPRoute:
		return readRefs(raw, func(o *gatewayv1.TCPRoute) *Refs {
			return routeRef(o.Namespace, o.Spec.ParentRefs, nil, httpBackends(o.Namespace, tcpRules(o.Spec.Rules)))
		})
	case model.KindBackendTLSPolicy:
		return readRefs(raw, policyRef)
	}
	return nil
}

// readRefs returns nil for an object that is not of its Go type.
func readRefs[T any](raw []byte, of func(*T) *Refs) *Refs {
	o := new(T)
	if json.Unmarshal(raw, o) != nil {
		return nil
	}
	return of(o)
}

func classRef(o *gatewayv1.GatewayClass) *Refs {
	controller := string(o.Spec.ControllerName)
	if controller != ControllerMoonsail && controller != ControllerIstio {
		return nil
	}
	if controller == ControllerIstio && gatewayClasses[gatewayv1.ObjectName(o.Name)] != controller {
		return nil // Istio's own control plane has more classes
	}
	return &Refs{Class: &ClassRef{Controller: controller, Counts: gatewayClasses[gatewayv1.ObjectName(o.Name)] == controller}}
}

func gatewayRef(o *gatewayv1.Gateway) *Refs {
	if gatewayClasses[o.Spec.GatewayClassName] == "" {
		return nil
	}
	return &Refs{Gateway: listenerRefs(o)}
}

func listenerRefs(o *gatewayv1.Gateway) *GatewayRef {
	out := &GatewayRef{Controller: gatewayClasses[o.Spec.GatewayClassName]}
	if a := o.Spec.AllowedListeners; a != nil && a.Namespaces != nil && a.Namespaces.From != nil {
		out.ListenerSets = namespaceSelection(*a.Namespaces.From, o.Namespace, a.Namespaces.Selector)
	}
	out.addListeners(o.Namespace, o.Spec.Listeners)
	out.addTLS(o)
	return out
}

// addTLS adds the references of spec.tls.
func (g *GatewayRef) addTLS(o *gatewayv1.Gateway) {
	tls := o.Spec.TLS
	if tls == nil {
		return
	}
	at := problem.Path("spec.tls")
	if b := tls.Backend; b != nil && b.ClientCertificateRef != nil {
		r := b.ClientCertificateRef
		ref := refOf(at.Field("backend").Field("clientCertificateRef"), o.Namespace, "", string(model.KindSecret), r.Group, r.Kind, r.Namespace, r.Name)
		g.ClientCertificate = &ref
	}
	if f := tls.Frontend; f != nil {
		at := at.Field("frontend")
		g.Validations = map[uint32]ValidationRef{0: validationRef(at.Field("default"), o.Namespace, &f.Default)}
		for i := range f.PerPort {
			p := &f.PerPort[i]
			g.Validations[uint32(p.Port)] = validationRef(at.Field("perPort").Index(i).Field("tls"), o.Namespace, &p.TLS)
		}
	}
}

func validationRef(at problem.Path, ns string, tls *gatewayv1.TLSConfig) ValidationRef {
	v := tls.Validation
	if v == nil {
		return ValidationRef{}
	}
	out := ValidationRef{Required: true, Insecure: v.Mode == gatewayv1.AllowInsecureFallback}
	for i := range v.CACertificateRefs {
		r := &v.CACertificateRefs[i]
		at := at.Field("validation").Field("caCertificateRefs").Index(i)
		out.CAs = append(out.CAs, refOf(at, ns, "", "", &r.Group, &r.Kind, r.Namespace, r.Name))
	}
	return out
}

func (g *GatewayRef) addListeners(ns string, list []gatewayv1.Listener) {
	for i := range list {
		g.Listeners = append(g.Listeners, listenerRef(problem.Path("spec.listeners").Index(i), ns, &list[i]))
	}
}

// namespaceSelection returns nil for no namespace.
func namespaceSelection(from gatewayv1.FromNamespaces, own string, selector *metav1.LabelSelector) *model.NamespaceSelection {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return &model.NamespaceSelection{Namespace: convert.ExportAll}
	case gatewayv1.NamespacesFromSame:
		return &model.NamespaceSelection{Namespace: own}
	case gatewayv1.NamespacesFromSelector:
		return &model.NamespaceSelection{Selector: labelSelector(selector)}
	}
	return nil
}

// AsGateway returns what decides which routes and ListenerSets belong to the Gateway or ListenerSet, with all listeners.
func (g *GatewayRef) AsGateway(k model.Key) *model.Gateway {
	out := &model.Gateway{Meta: model.Meta{Key: k}, Parent: g.Parent, ListenerSets: g.ListenerSets}
	for i := range g.Listeners {
		out.Servers = append(out.Servers, *g.Listeners[i].Server(k.Namespace))
	}
	return out
}

// Placed returns the AsGateway without listeners of unsupported protocols, and without those that conflict with an earlier
// one: the input of model.Displaced.
func (g *GatewayRef) Placed(k model.Key) *model.Gateway {
	out, conflicts := g.AsGateway(k), g.Conflicts()
	all := out.Servers
	out.Servers = nil
	for i := range all {
		if all[i].Port.Protocol != "" && conflicts[i].Reason == "" {
			out.Servers = append(out.Servers, all[i])
		}
	}
	return out
}

func listenerRef(at problem.Path, ns string, l *gatewayv1.Listener) ListenerRef {
	out := ListenerRef{
		Name: string(l.Name), Port: uint32(l.Port), Protocol: string(l.Protocol), Hostname: "*", From: string(gatewayv1.NamespacesFromSame),
	}
	if l.Hostname != nil && *l.Hostname != "" {
		out.Hostname = model.Host(strings.ToLower(string(*l.Hostname)))
	}
	if a := l.AllowedRoutes; a != nil {
		if a.Namespaces != nil && a.Namespaces.From != nil {
			out.From = string(*a.Namespaces.From)
			out.Namespaces = labelSelector(a.Namespaces.Selector)
		}
		for i, k := range a.Kinds {
			out.Kinds = append(out.Kinds, refOf(at.Field("allowedRoutes").Field("kinds").Index(i), ns, Group, "", k.Group, &k.Kind, nil, ""))
		}
	}
	if l.TLS == nil {
		return out
	}
	out.TLSMode = string(gatewayv1.TLSModeTerminate)
	if l.TLS.Mode != nil {
		out.TLSMode = string(*l.TLS.Mode)
	}
	out.Terminate = string(l.TLS.Options[optionTerminate])
	for i, c := range l.TLS.CertificateRefs {
		out.Certificates = append(out.Certificates, refOf(at.Field("tls").Field("certificateRefs").Index(i), ns, "", "Secret", c.Group, c.Kind, c.Namespace, c.Name))
	}
	return out
}

// labelSelector is one of Kubernetes; nil stays nil.
func labelSelector(s *metav1.LabelSelector) *model.LabelSelector {
	if s == nil {
		return nil
	}
	out := &model.LabelSelector{Labels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		out.Expressions = append(out.Expressions, model.LabelExpression{Key: e.Key, Operator: model.LabelOperator(e.Operator), Values: e.Values})
	}
	return out
}

// refOf puts in what a reference leaves out.
func refOf(at problem.Path, ns, group, kind string, g *gatewayv1.Group, k *gatewayv1.Kind, n *gatewayv1.Namespace, name gatewayv1.ObjectName) ObjectRef {
	out := ObjectRef{Field: string(at), Group: group, Kind: kind, Namespace: ns, Name: string(name)}
	if g != nil {
		out.Group = string(*g)
	}
	if k != nil {
		out.Kind = string(*k)
	}
	if n != nil {
		out.Namespace = string(*n)
	}
	return out
}

func routeRef(ns string, parents []gatewayv1.ParentReference, hostnames []gatewayv1.Hostname, backends []ObjectRef) *Refs {
	out := &RouteRef{Backends: backends}
	for i := range parents {
		one := parentRef(problem.Path("spec.parentRefs").Index(i), ns, &parents[i])
		one.Ref, _ = json.Marshal(&parents[i]) // strings and a number can always be written
		out.Parents = append(out.Parents, one)
	}
	for _, h := range hostnames {
		out.Hostnames = append(out.Hostnames, model.Host(strings.ToLower(string(h))))
	}
	if len(hostnames) == 0 {
		out.Hostnames = []model.Host{"*"}
	}
	return &Refs{Route: out}
}

// parentRef is without Ref.
func parentRef(at problem.Path, ns string, p *gatewayv1.ParentReference) ParentRef {
	out := ParentRef{ObjectRef: refOf(at, ns, Group, "Gateway", p.Group, p.Kind, p.Namespace, p.Name)}
	if p.Port != nil {
		out.Port = uint32(*p.Port)
	}
	if p.SectionName != nil {
		out.Section = string(*p.SectionName)
	}
	return out
}

// httpBackends are those of rules, and those that they mirror to.
func httpBackends(ns string, rules []gatewayv1.HTTPRouteRule) []ObjectRef {
	var out []ObjectRef
	for i := range rules {
		at := problem.Path("spec.rules").Index(i)
		for j := range rules[i].BackendRefs {
			out = append(out, backendRef(at.Field("backendRefs").Index(j), ns, &rules[i].BackendRefs[j].BackendObjectReference))
		}
		for j, f := range rules[i].Filters {
			if f.RequestMirror != nil {
				out = append(out, backendRef(at.Field("filters").Index(j).Field("requestMirror").Field("backendRef"), ns, &f.RequestMirror.BackendRef))
			}
		}
	}
	return out
}

func backendRef(at problem.Path, ns string, b *gatewayv1.BackendObjectReference) ObjectRef {
	out := refOf(at, ns, "", "Service", b.Group, b.Kind, b.Namespace, b.Name)
	if b.Port != nil {
		out.Port = uint32(*b.Port)
	}
	return out
}

// KindText is a kind as messages call it.
func (r *ObjectRef) KindText() string {
	return strings.TrimSuffix(fmt.Sprintf("%s.%s", r.Kind, r.Group), ".")
}

// IsGateway reports whether it is a Gateway of the Gateway API.
func (r *ObjectRef) IsGateway() bool { return r.Kind == "Gateway" && r.Group == Group }

// IsListenerSet reports whether it is a ListenerSet.
func (r *ObjectRef) IsListenerSet() bool {
	return r.Kind == string(model.KindListenerSet) && r.Group == Group
}

// IsListener reports whether it is a Gateway or a ListenerSet: a parent with listeners.
func (r *ObjectRef) IsListener() bool { return r.IsGateway() || r.IsListenerSet() }

// Key returns the key of the Gateway, ListenerSet or ServiceEntry in the model.
func (r *ObjectRef) Key() model.Key {
	kind := model.KindKubernetesGateway
	switch {
	case r.IsListenerSet():
		kind = model.KindListenerSet
	case r.IsServiceEntry():
		kind = model.KindServiceEntry
	}
	return model.Key{Kind: kind, Namespace: r.Namespace, Name: r.Name}
}

// IsService reports whether it is a Service of Kubernetes.
func (r *ObjectRef) IsService() bool { return r.Kind == "Service" && r.Group == "" }

// IsOfMesh reports whether it is a Service or ServiceEntry: a parent of routes for sidecars.
func (r *ObjectRef) IsOfMesh() bool { return r.IsService() || r.IsServiceEntry() }

// IsServiceEntry reports whether it is a ServiceEntry of Istio.
func (r *ObjectRef) IsServiceEntry() bool {
	return r.Kind == string(model.KindServiceEntry) && r.Group == groupIstio
}

// IsHostname reports whether it is what Istio calls so: the host of any service of the mesh.
func (r *ObjectRef) IsHostname() bool {
	return r.Kind == "Hostname" && r.Group == groupIstio
}

// NeedsSecret reports whether TLS ends at the listener with certificates that are not the mesh's.
func (l *ListenerRef) NeedsSecret() bool {
	tls := l.Protocol == string(gatewayv1.HTTPSProtocolType) || l.Protocol == string(gatewayv1.TLSProtocolType) && l.TLSMode != string(gatewayv1.TLSModePassthrough)
	return tls && l.Terminate != string(model.ServerIstioMutual) && l.Terminate != terminateMesh
}

// terminateMesh ends TLS as SIMPLE does, with the router's certificate of the mesh instead of a Secret.
const terminateMesh = "ISTIO_SIMPLE"

// terminateModes are the values of optionTerminate.
var terminateModes = []string{
	string(model.ServerSimple), string(model.ServerMutual), string(model.ServerOptionalMutual), string(model.ServerIstioMutual), terminateMesh,
}

// Trouble is why a listener with TLS cannot be served, whatever other objects there are. It is zero for others.
type Trouble struct {
	Field string // in the listener's tls
	Text  string
	code  code.Code
}

// Trouble reports a mode of TLS that the listener's protocol cannot have. An unknown mode of Istio's option is not taken for
// SIMPLE, as in Istio: a typing error in MUTUAL must not let clients in without certificates.
func (l *ListenerRef) Trouble() Trouble {
	switch {
	case !protocols[gatewayv1.ProtocolType(l.Protocol)].IsTLS() || l.Passes():
		return Trouble{}
	case l.TLSMode != string(gatewayv1.TLSModeTerminate):
		return Trouble{"mode", l.Protocol + " needs mode Terminate, and certificateRefs", code.NotAllowedHere}
	case l.Terminate != "" && !slices.Contains(terminateModes, l.Terminate):
		field := problem.Path("options").Key(optionTerminate)
		return Trouble{string(field), fmt.Sprintf("%q is not one of %s", l.Terminate, strings.Join(terminateModes, ", ")), code.UnknownValue}
	}
	return Trouble{}
}

// IsConfigMap reports whether it is a ConfigMap.
func (r *ObjectRef) IsConfigMap() bool { return r.Kind == "ConfigMap" && r.Group == "" }

// IsSecret reports whether it is a Secret.
func (r *ObjectRef) IsSecret() bool { return r.Kind == "Secret" && r.Group == "" }

// Possible are the kinds of routes that listeners of its protocol may take; none: it is not supported.
func (l *ListenerRef) Possible() []model.Kind {
	switch gatewayv1.ProtocolType(l.Protocol) {
	case gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType:
		return []model.Kind{model.KindHTTPRoute, model.KindGRPCRoute}
	case gatewayv1.TLSProtocolType:
		if l.TLSMode == string(gatewayv1.TLSModePassthrough) {
			return []model.Kind{model.KindTLSRoute}
		}
		return []model.Kind{model.KindTLSRoute, model.KindTCPRoute}
	case gatewayv1.TCPProtocolType:
		return []model.Kind{model.KindTCPRoute}
	}
	return nil
}

// Server returns what decides which routes the listener of a Gateway in a namespace takes, and with which listeners it
// conflicts: names, port, protocol, kinds, hostname, namespaces and the mode of TLS. The decoded Gateway and statuses share
// it. Port.Protocol is empty if the protocol is not supported.
func (l *ListenerRef) Server(namespace string) *model.GatewayServer {
	routes, _ := l.Routes()
	from := convert.ExportNone
	switch gatewayv1.FromNamespaces(l.From) {
	case gatewayv1.NamespacesFromAll:
		from = convert.ExportAll
	case gatewayv1.NamespacesFromSame:
		from = namespace
	}
	out := &model.GatewayServer{
		Port: model.GatewayPort{Number: l.Port, Name: l.Name, Protocol: protocols[gatewayv1.ProtocolType(l.Protocol)]}, Routes: routes,
		Hosts: []model.HostSelector{{Namespace: from, Host: l.Hostname}},
	}
	if l.From == string(gatewayv1.NamespacesFromSelector) {
		out.Namespaces = l.Namespaces
	}
	switch {
	case !out.Port.Protocol.IsTLS():
	case l.Passes():
		out.TLS = &model.ServerTLS{Mode: model.ServerPassthrough}
	case l.Terminate == terminateMesh:
		out.TLS = &model.ServerTLS{Mode: model.ServerSimple, MeshCertificate: true}
	default:
		out.TLS = &model.ServerTLS{Mode: model.ServerTLSMode(cmp.Or(l.Terminate, string(model.ServerSimple)))}
	}
	return out
}

// protocols are the supported protocols of listeners.
var protocols = map[gatewayv1.ProtocolType]model.Protocol{
	gatewayv1.HTTPProtocolType: model.ProtocolHTTP, gatewayv1.HTTPSProtocolType: model.ProtocolHTTPS,
	gatewayv1.TLSProtocolType: model.ProtocolTLS, gatewayv1.TCPProtocolType: model.ProtocolTCP,
}

// Passes reports whether the listener forwards TLS connections without decrypting them.
func (l *ListenerRef) Passes() bool {
	return l.Protocol == string(gatewayv1.TLSProtocolType) && l.TLSMode == string(gatewayv1.TLSModePassthrough)
}

// Conflicts returns why each listener of the Gateway cannot be served beside an earlier one. The first of conflicting
// listeners is served. Only what is written counts: a listener keeps its place without its Secrets. Listeners of
// unsupported protocols have no conflicts.
func (g *GatewayRef) Conflicts() []model.ServerConflict {
	out := make([]model.ServerConflict, len(g.Listeners))
	var served []*model.GatewayServer
	for i := range g.Listeners {
		server := g.Listeners[i].Server("")
		if server.Port.Protocol == "" {
			continue
		}
		if out[i] = conflictWith(served, server); out[i].Reason == "" {
			served = append(served, server)
		}
	}
	return out
}

func conflictWith(served []*model.GatewayServer, server *model.GatewayServer) model.ServerConflict {
	for _, o := range served {
		if o.Port.Number != server.Port.Number {
			continue
		}
		if conflict := o.Conflict(server); conflict.Reason != "" {
			conflict.Text = fmt.Sprintf("listener %s has port %d too, and %s", o.Port.Name, o.Port.Number, conflict.Text)
			return conflict
		}
	}
	return model.ServerConflict{}
}

// Routes are the kinds of routes that it takes, and the references in allowedRoutes to kinds that it cannot take.
func (l *ListenerRef) Routes() (taken []model.Kind, wrong []ObjectRef) {
	possible := l.Possible()
	if len(l.Kinds) == 0 {
		return possible, nil
	}
	taken = []model.Kind{}
	for _, ref := range l.Kinds {
		if kind := model.Kind(ref.Kind); ref.Group == Group && slices.Contains(possible, kind) {
			taken = append(taken, kind)
		} else {
			wrong = append(wrong, ref)
		}
	}
	return taken, wrong
}

// Group is the API group of the Gateway API.
const Group = "gateway.networking.k8s.io"

// groupIstio is the API group of Istio's kinds that routes may refer to.
const groupIstio = "networking.istio.io"
