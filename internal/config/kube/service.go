package kube

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// annotationExportTo is exportTo of a Kubernetes Service: namespaces, comma separated.
const annotationExportTo = "networking.istio.io/exportTo"

// tcpPorts are ports whose servers speak first, so that sniffing would break them
// (pkg/config/kube in Istio): they are TCP where nothing is said.
var tcpPorts = map[int32]bool{25: true, 53: true, 3306: true, 27017: true}

// Namespace decodes a Namespace.
func Namespace(in convert.Cluster, o *corev1.Namespace) (*model.Namespace, problem.List) {
	c := start(in, model.KindNamespace, &o.ObjectMeta)
	if c.Meta.Labels[model.LabelNamespace] != o.Name { // as the API server sees to it
		c.Meta.Labels = maps.Clone(c.Meta.Labels)
		if c.Meta.Labels == nil {
			c.Meta.Labels = map[string]string{}
		}
		c.Meta.Labels[model.LabelNamespace] = o.Name
	}
	return &model.Namespace{Meta: c.Meta, Distribution: c.AnnotatedDistribution(o.Annotations), Delivery: c.delivery(o.Annotations)}, c.Problems
}

// delivery is the value of an annotation.
func (c *conv) delivery(annotations map[string]string) model.Delivery {
	v := annotations[model.AnnotationOutbound]
	if v == "" || slices.Contains(model.Deliveries, v) {
		return model.Delivery(v)
	}
	c.Warnf(code.UnknownValue, problem.Path("metadata").Field("annotations").Key(model.AnnotationOutbound),
		"%q is not known and has no effect; use %s", v, strings.Join(model.Deliveries, ", "))
	return ""
}

// Service decodes a Kubernetes Service.
func Service(in convert.Cluster, o *corev1.Service) (*model.Service, problem.List) {
	c := start(in, model.KindService, &o.ObjectMeta)
	at, spec := problem.Path("spec"), &o.Spec
	if o.Name != "" && len(validation.IsDNS1123Label(o.Name)) > 0 { // a first digit is valid since Kubernetes 1.36
		c.Errorf(code.InvalidName, "metadata.name", "%q is not a valid service name: use lower-case letters, digits and '-'", o.Name)
	}
	s := &model.Service{
		Meta:            c.Meta,
		Hostname:        model.Host(o.Name + "." + o.Namespace + ".svc." + c.Domain),
		Resolution:      model.ResolutionStatic,
		Headless:        spec.ClusterIP == corev1.ClusterIPNone,
		Selector:        spec.Selector,
		PublishNotReady: spec.PublishNotReadyAddresses,
		IPv6First:       len(spec.IPFamilies) > 0 && spec.IPFamilies[0] == corev1.IPv6Protocol,
		Ports:           c.servicePorts(at.Field("ports"), spec.Ports),
		Addresses:       c.clusterIPs(at, spec),
		Visibility:      c.annotatedExportTo(o.Annotations[annotationExportTo]),
		NodeLocal:       spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		Balanced:        spec.Type == corev1.ServiceTypeLoadBalancer,
	}
	for _, in := range o.Status.LoadBalancer.Ingress {
		if address := cmp.Or(in.IP, in.Hostname); address != "" {
			s.Outside = append(s.Outside, address)
		}
	}
	s.Outside = append(s.Outside, spec.ExternalIPs...)
	s.SubjectAltNames, s.Accounts = listed(o.Annotations[annotationIdentities]), listed(o.Annotations[annotationAccounts])
	c.Labels(at.Field("selector"), spec.Selector)
	c.serviceType(at, spec, s)
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		c.Warnf(code.NoEffect, at.Field("sessionAffinity"), "has no effect on calls of sidecars and gateways, as in Istio; use consistentHash.useSourceIp of a DestinationRule")
	}
	s.Distribution = c.serviceDistribution(o)
	return s, c.Problems
}

// Annotations with identities that callers accept beside those of the workloads.
const (
	annotationIdentities = "alpha.istio.io/canonical-serviceaccounts"
	annotationAccounts   = "alpha.istio.io/kubernetes-serviceaccounts"
)

// listed reads a list that commas separate.
func listed(text string) []string {
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// serviceDistribution is the field's, or else the annotation's.
func (c *conv) serviceDistribution(o *corev1.Service) model.Distribution {
	annotated := c.AnnotatedDistribution(o.Annotations)
	if o.Spec.TrafficDistribution == nil {
		return annotated
	}
	return cmp.Or(c.Distribution(problem.Path("spec").Field("trafficDistribution"), *o.Spec.TrafficDistribution), annotated)
}

func (c *conv) serviceType(at problem.Path, spec *corev1.ServiceSpec, s *model.Service) {
	switch spec.Type {
	case corev1.ServiceTypeExternalName:
		if c.CheckHost(at.Field("externalName"), spec.ExternalName, false) {
			s.ExternalName = model.Host(strings.ToLower(strings.TrimSuffix(spec.ExternalName, ".")))
		}
		s.Resolution, s.Selector = model.ResolutionDNS, nil
		return
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	default:
		types := []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}
		c.Errorf(code.UnknownValue, at.Field("type"), "%q is not one of %s%s", spec.Type, strings.Join(types, ", "), spelling.DidYouMean(string(spec.Type), types)).
			Set(spelling.Nearest(string(spec.Type), types))
	}
	if len(spec.Ports) == 0 && !s.Headless {
		c.Errorf(code.MissingField, at.Field("ports"), "is missing; a service needs at least one port, unless it is headless")
	}
}

func (c *conv) annotatedExportTo(value string) model.Visibility {
	if value == "" {
		return model.Visibility{}
	}
	list := strings.Split(value, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	before := len(c.Problems)
	v := c.ExportTo("", list, true)
	for i := range c.Problems[before:] {
		c.Problems[before+i].Field = string(problem.Path("metadata.annotations").Key(annotationExportTo))
	}
	return v
}

func (c *conv) clusterIPs(at problem.Path, spec *corev1.ServiceSpec) []netip.Prefix {
	if spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	ips, field := spec.ClusterIPs, at.Field("clusterIPs")
	if len(ips) == 0 && spec.ClusterIP != "" {
		ips, field = []string{spec.ClusterIP}, at.Field("clusterIP")
	}
	var out []netip.Prefix
	for _, ip := range ips {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			c.Errorf(code.InvalidFormat, field, "%q is not an IP address; write one, or None for a headless service", ip)
			continue
		}
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

func (c *conv) servicePorts(at problem.Path, ports []corev1.ServicePort) []model.ServicePort {
	out := make([]model.ServicePort, 0, len(ports))
	names, numbers := map[string]bool{}, map[string]bool{}
	for i := range ports {
		p, at := &ports[i], at.Index(i)
		c.CheckPort(at.Field("port"), uint32(max(p.Port, 0)))
		transport := p.Protocol
		if transport == "" {
			transport = corev1.ProtocolTCP
		}
		if number := fmt.Sprintf("%s/%d", transport, p.Port); numbers[number] {
			c.Errorf(code.ListedTwice, at.Field("port"), "port %d is listed twice; remove one", p.Port)
		} else {
			numbers[number] = true
		}
		c.servicePortName(at.Field("name"), p.Name, len(ports), names)
		out = append(out, model.ServicePort{
			Name:       p.Name,
			Number:     uint32(max(p.Port, 0)),
			Protocol:   c.servicePortProtocol(at, p, transport),
			TargetPort: c.targetNumber(at.Field("targetPort"), p.TargetPort),
			TargetName: p.TargetPort.StrVal,
		})
	}
	return out
}

func (c *conv) servicePortName(at problem.Path, name string, ports int, names map[string]bool) {
	switch {
	case name == "" && ports > 1:
		c.Errorf(code.MissingField, at, "is missing; ports must be named where there are several")
	case name != "" && len(validation.IsDNS1123Label(name)) > 0:
		c.Errorf(code.InvalidName, at, "%q is not a port name: use lower-case letters, digits and '-'", name)
	case names[name]:
		c.Errorf(code.ListedTwice, at, "%q is the name of two ports; rename one", name)
	}
	names[name] = true
}

func (c *conv) targetNumber(at problem.Path, t intstr.IntOrString) uint32 {
	if t.Type == intstr.String {
		if t.StrVal != "" && len(validation.IsValidPortName(t.StrVal)) > 0 {
			c.Errorf(code.InvalidName, at, "%q is not a container port's name: use at most 15 lower-case letters, digits and '-'", t.StrVal)
		}
		return 0
	}
	if t.IntVal != 0 {
		c.CheckPort(at, uint32(max(t.IntVal, 0)))
	}
	return uint32(max(t.IntVal, 0))
}

// servicePortProtocol goes by appProtocol, then the port's name, then its transport.
func (c *conv) servicePortProtocol(at problem.Path, p *corev1.ServicePort, transport corev1.Protocol) model.Protocol {
	switch transport {
	case corev1.ProtocolTCP:
	case corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return model.ProtocolUDP // neither is proxied
	default:
		c.Errorf(code.UnknownValue, at.Field("protocol"), "%q is not one of TCP, UDP, SCTP; the application's protocol goes into appProtocol", transport)
	}
	name := p.Name
	if p.AppProtocol != nil {
		name = *p.AppProtocol
	}
	proto := model.ParseProtocol(name)
	if proto == model.ProtocolAuto && tcpPorts[p.Port] {
		return model.ProtocolTCP
	}
	return proto
}
