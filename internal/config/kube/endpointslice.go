package kube

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// EndpointSlice decodes a slice of a service's endpoints. Only TCP ports are kept.
func EndpointSlice(in convert.Cluster, o *discoveryv1.EndpointSlice) (*model.EndpointSlice, problem.List) {
	c := start(in, model.KindEndpointSlice, &o.ObjectMeta)
	s := &model.EndpointSlice{Meta: c.Meta, Service: o.Labels[discoveryv1.LabelServiceName], PodsListed: in.PodsListed}
	if s.Service == "" {
		c.Errorf(code.MissingField, "metadata.labels", "label %s is missing; set it to the name of the service", discoveryv1.LabelServiceName)
	}
	s.Ports = c.slicePorts("ports", o.Ports)
	switch o.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		s.Members = c.sliceEndpoints("endpoints", o.Endpoints)
	case discoveryv1.AddressTypeFQDN:
		c.Warnf(code.NotSupported, "addressType", "endpoints of type FQDN are not used; use a ServiceEntry with resolution DNS")
	default:
		c.Errorf(code.UnknownValue, "addressType", "%q is not one of IPv4, IPv6, FQDN", o.AddressType)
	}
	return s, c.Problems
}

func (c *conv) slicePorts(at problem.Path, ports []discoveryv1.EndpointPort) []model.SlicePort {
	var out []model.SlicePort
	for i, p := range ports {
		if p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			continue
		}
		if p.Port == nil {
			c.Warnf(code.MissingField, at.Index(i).Field("port"), "is missing; the port is left out")
			continue
		}
		c.CheckPort(at.Index(i).Field("port"), uint32(max(*p.Port, 0)))
		port := model.SlicePort{Number: uint32(max(*p.Port, 0))}
		if p.Name != nil {
			port.Name = *p.Name
		}
		out = append(out, port)
	}
	return out
}

func (c *conv) sliceEndpoints(at problem.Path, endpoints []discoveryv1.Endpoint) []model.SliceEndpoint {
	out := make([]model.SliceEndpoint, 0, len(endpoints))
	for i := range endpoints {
		e, at := &endpoints[i], at.Index(i)
		if len(e.Addresses) == 0 {
			c.Errorf(code.MissingField, at.Field("addresses"), "is missing; an endpoint needs an IP address")
		}
		for j, a := range e.Addresses {
			if !model.IsIP(a) {
				c.Errorf(code.InvalidFormat, at.Field("addresses").Index(j), "%q is not an IP address", a)
			}
		}
		out = append(out, sliceEndpoint(c.Meta.Namespace, e))
	}
	return out
}

// sliceEndpoint reads conditions as discovery/v1 defines them: ready and serving are true if they are not set.
func sliceEndpoint(ns string, e *discoveryv1.Endpoint) model.SliceEndpoint {
	out := model.SliceEndpoint{
		Addresses:   e.Addresses,
		Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
	}
	if ref := e.TargetRef; ref != nil && ref.Kind == "Pod" && (ref.Namespace == "" || ref.Namespace == ns) {
		out.Pod = ref.Name
	}
	if e.NodeName != nil {
		out.Node = *e.NodeName
	}
	if e.Zone != nil {
		out.Zone = *e.Zone
	}
	return out
}
