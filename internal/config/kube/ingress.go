package kube

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Names by which Istio's control plane is the controller of Ingresses.
const (
	ingressController      = "istio.io/ingress-controller"
	annotationIngressClass = "kubernetes.io/ingress.class"
)

// Ports of routers for Ingresses.
const (
	ingressPort    = 80
	ingressTLSPort = 443
)

// IngressClass decodes a class of Ingresses.
func IngressClass(in convert.Cluster, o *networkingv1.IngressClass) (*model.IngressClass, problem.List) {
	c := start(in, model.KindIngressClass, &o.ObjectMeta)
	return &model.IngressClass{Meta: c.Meta, Istio: o.Spec.Controller == ingressController}, c.Problems
}

// ingressConv converts one Ingress.
type ingressConv struct {
	*conv
	out *model.Ingress
}

// Ingress decodes an Ingress of any class, as Istio converts it to a Gateway and VirtualServices. It reports no problems:
// an Ingress of another controller has fields that only this controller knows. Parts without effect are notes.
func Ingress(in convert.Cluster, o *networkingv1.Ingress) (*model.Ingress, problem.List) {
	c := start(in, model.KindIngress, &o.ObjectMeta)
	i := ingressConv{c, &model.Ingress{Meta: c.Meta}}
	if o.Spec.IngressClassName != nil {
		i.out.Class = *o.Spec.IngressClassName
	}
	if class, ok := o.Annotations[annotationIngressClass]; ok {
		i.out.Annotation = &class
	}
	spec := problem.Path("spec")
	if o.Spec.DefaultBackend != nil {
		i.note(spec.Field("defaultBackend"), "has no effect, as in Istio; write a rule without a host for the path /")
	}
	i.servers(spec.Field("tls"), o)
	for n := range o.Spec.Rules {
		i.rule(spec.Field("rules").Index(n), &o.Spec.Rules[n])
	}
	for _, v := range i.out.Rules { // the longest path first, exact ones before prefixes
		slices.SortStableFunc(v.HTTP, func(a, b model.HTTPRoute) int { return specificity(a.Matches).Compare(specificity(b.Matches)) })
	}
	return i.out, nil
}

func specificity(list []model.HTTPMatch) model.Specificity {
	if len(list) == 0 {
		return model.Specificity{}
	}
	return model.SpecificityOf(list[0].URI, nil, nil, nil)
}

func (i ingressConv) note(at problem.Path, format string, args ...any) {
	i.out.Notes = append(i.out.Notes, model.IngressNote{Field: string(at), Text: fmt.Sprintf(format, args...)})
}

// servers adds a server for each Secret, and the one in plain text.
func (i ingressConv) servers(at problem.Path, o *networkingv1.Ingress) {
	for n, tls := range o.Spec.TLS {
		if _, ok := model.ParseCredential(tls.SecretName); !ok {
			i.note(at.Index(n).Field("secretName"), "names no Secret, so the hosts are not served with TLS; name a Secret of the routers' namespace")
			continue
		}
		server := model.GatewayServer{
			Port: model.GatewayPort{
				Number: ingressTLSPort, Name: fmt.Sprintf("https-443-ingress-%s-%s-%d", o.Name, o.Namespace, n), Protocol: model.ProtocolHTTPS,
			},
			TLS: &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{tls.SecretName}},
		}
		for m, h := range tls.Hosts {
			if !validHost(h) {
				i.note(at.Index(n).Field("hosts").Index(m), "invalid host %q, so it is not served: use a DNS name or *.NAME", h)
				continue
			}
			server.Hosts = append(server.Hosts, anyNamespace(h))
		}
		if len(tls.Hosts) == 0 {
			server.Hosts = []model.HostSelector{anyNamespace("*")}
		}
		if len(server.Hosts) > 0 {
			i.out.Servers = append(i.out.Servers, server)
		}
	}
	i.out.Servers = append(i.out.Servers, model.GatewayServer{
		Port:  model.GatewayPort{Number: ingressPort, Name: fmt.Sprintf("http-80-ingress-%s-%s", o.Name, o.Namespace), Protocol: model.ProtocolHTTP},
		Hosts: []model.HostSelector{anyNamespace("*")},
	})
}

func anyNamespace(host string) model.HostSelector {
	return model.HostSelector{Namespace: convert.ExportAll, Host: model.Host(strings.ToLower(host))}
}

func validHost(h string) bool {
	rest := strings.TrimPrefix(h, "*.")
	return rest != "" && convert.IsName(strings.ToLower(rest))
}

// rule adds the paths of one host.
func (i ingressConv) rule(at problem.Path, r *networkingv1.IngressRule) {
	host := r.Host
	switch {
	case host == "":
		host = "*"
	case !validHost(host):
		i.note(at.Field("host"), "%q is not a host, so the rule has no effect", host)
		return
	}
	if r.HTTP == nil {
		i.note(at, "has no paths, so it has no effect; add http.paths")
		return
	}
	v := i.host(model.Host(strings.ToLower(host)))
	for n := range r.HTTP.Paths {
		i.path(at.Field("http").Field("paths").Index(n), &r.HTTP.Paths[n], v)
	}
}

// host returns the VirtualService of a host, which several rules may have.
func (i ingressConv) host(h model.Host) *model.VirtualService {
	for _, v := range i.out.Rules {
		if v.Hosts[0] == h {
			return v
		}
	}
	v := &model.VirtualService{Meta: i.Meta, Hosts: []model.Host{h}, Gateways: i.out.RuleGateways(h)}
	i.out.Rules = append(i.out.Rules, v)
	return v
}

// path adds a route.
func (i ingressConv) path(at problem.Path, p *networkingv1.HTTPIngressPath, v *model.VirtualService) {
	s := p.Backend.Service
	if s == nil {
		i.note(at.Field("backend"), "is not a Service, so the path has no effect; name a Service")
		return
	}
	if s.Port.Number == 0 && s.Port.Name == "" {
		i.note(at.Field("backend").Field("service").Field("port"), "is missing, so the path has no effect; set a number or a name")
		return
	}
	route := model.HTTPRoute{Backends: []model.Backend{{Weight: 100, Destination: model.Destination{
		Host: model.ResolveHost(s.Name, i.Meta.Namespace, i.Domain), Port: uint32(s.Port.Number), PortName: s.Port.Name,
	}}}}
	match, ok := pathMatch(p)
	if !ok {
		i.note(at.Field("path"), "%q does not begin with \"/\", so the path has no effect", p.Path)
		return
	}
	if match != nil {
		route.Matches = []model.HTTPMatch{{URI: match}}
	}
	v.HTTP = append(v.HTTP, route)
}

// pathMatch returns nil for every path, and false for one without effect. A path of type ImplementationSpecific is exact,
// unless it ends in ".*" or "/*", as in Istio.
func pathMatch(p *networkingv1.HTTPIngressPath) (*model.StringMatch, bool) {
	kind, path := networkingv1.PathTypeImplementationSpecific, p.Path
	if p.PathType != nil {
		kind = *p.PathType
	}
	if path != "" && !strings.HasPrefix(path, "/") {
		return nil, false
	}
	prefix := func(kind model.MatchKind, value string) (*model.StringMatch, bool) {
		if value == "" || value == "/" {
			return nil, true
		}
		return &model.StringMatch{Kind: kind, Value: value}, true
	}
	switch {
	case kind == networkingv1.PathTypeExact:
		return &model.StringMatch{Kind: model.MatchExact, Value: path}, path != ""
	case kind == networkingv1.PathTypePrefix:
		return prefix(model.MatchPathPrefix, strings.TrimRight(path, "/"))
	case path == "":
		return nil, true
	case strings.HasSuffix(path, ".*"):
		return prefix(model.MatchPrefix, strings.TrimSuffix(path, ".*"))
	case strings.HasSuffix(path, "/*"):
		return prefix(model.MatchPrefix, strings.TrimSuffix(path, "/*"))
	}
	return &model.StringMatch{Kind: model.MatchExact, Value: path}, true
}
