package model

import "slices"

// Kinds of Kubernetes for calls from outside.
const (
	KindIngress      Kind = "Ingress"
	KindIngressClass Kind = "IngressClass"
)

// Ingress is Kubernetes' Ingress, of any class. Mesh.Serves decides whether it is one of the mesh.
type Ingress struct {
	Meta
	Class string // spec.ingressClassName; empty: none
	// Annotation is the value of the older annotation for the class, which precedes Class; nil: none.
	Annotation *string
	Servers    []GatewayServer
	// Rules have a VirtualService for each host. Their keys are the Ingress's.
	Rules []*VirtualService
	// Notes are parts without effect. Other controllers may use them, so that only an Ingress of the mesh is reported.
	Notes []IngressNote
}

// IngressNote is why a part of an Ingress has no effect.
type IngressNote struct{ Field, Text string }

// IngressClass is a class of Ingresses.
type IngressClass struct {
	Meta
	Istio bool // of Istio's controller
}

// IngressMode is which Ingresses without a class object belong to the mesh.
type IngressMode uint8

// The modes of MeshConfig.
const (
	IngressStrict  IngressMode = iota // those with the annotation
	IngressDefault                    // and those without the annotation
	IngressOff                        // none, also of those with a class
)

// IngressSettings are those of MeshConfig.
type IngressSettings struct {
	Mode     IngressMode
	Class    string // of the annotation
	Service  string // of the routers, in the root namespace: its addresses are those of Ingresses
	Selector string // the value of the label "istio" of routers; empty: Service's name
}

// DefaultIngress are Istio's settings.
func DefaultIngress() IngressSettings {
	return IngressSettings{Class: "istio", Service: defaultIngressService}
}

const defaultIngressService = "istio-ingressgateway"

// Serves reports whether an Ingress belongs to the mesh, as Istio decides. class is the object that the Ingress names; nil:
// there is none.
func (s IngressSettings) Serves(i *Ingress, class *IngressClass) bool {
	switch {
	case s.Mode == IngressOff:
		return false
	case i.Annotation != nil:
		return *i.Annotation == s.Class
	case class != nil:
		return class.Istio
	}
	return s.Mode == IngressDefault
}

// Routers returns the labels of the routers that serve Ingresses.
func (s IngressSettings) Routers() map[string]string {
	value := s.Selector
	switch {
	case value != "":
	case s.Service == "" || s.Service == defaultIngressService:
		value = "ingressgateway"
	default:
		value = s.Service
	}
	return map[string]string{"istio": value}
}

// Gateway returns the Ingress as the Gateway that its rules are bound to.
func (i *Ingress) Gateway(s IngressSettings) *Gateway {
	g := &Gateway{Meta: i.Meta, Selector: s.Routers(), Servers: i.Servers}
	for _, v := range i.Rules {
		g.RuleHosts = append(g.RuleHosts, v.Hosts...)
	}
	return g
}

// IngressGatewayName returns the name of the Gateway of an Ingress. No VirtualService can use it.
func IngressGatewayName(namespace, name string) string { return "ingress/" + namespace + "/" + name }

// IngressHostName returns the name by which rules of Ingresses are bound to TLS of other Ingresses: servers have it for each of
// their hosts, and for those of their Ingress's rules. Several Ingresses may have TLS for one host, of which one is served. Rules
// of the others have that server, too. No VirtualService can use the name.
func IngressHostName(h Host) string { return "ingress//" + string(h) }

// RuleGateways returns the names that the rules for a host are bound to.
func (i *Ingress) RuleGateways(h Host) []string {
	out := []string{IngressGatewayName(i.Namespace, i.Name), IngressHostName(h)}
	for n := range i.Servers {
		for _, wider := range i.Servers[n].AllHosts() {
			if name := IngressHostName(wider); i.Servers[n].TLS != nil && wider.Matches(h) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// IngressAddresses returns the addresses that statuses of Ingresses have: those of the load balancer of the routers' Service,
// and its externalIPs.
func IngressAddresses(s *Service) []string {
	if s.ExternalName != "" {
		return []string{string(s.ExternalName)}
	}
	out := slices.Clone(s.Outside)
	slices.Sort(out)
	return slices.Compact(out)
}
