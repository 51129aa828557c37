package istio

import (
	"net/netip"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

var resolutions = map[networking.ServiceEntry_Resolution]model.Resolution{
	networking.ServiceEntry_NONE:            model.ResolutionNone,
	networking.ServiceEntry_STATIC:          model.ResolutionStatic,
	networking.ServiceEntry_DNS:             model.ResolutionDNS,
	networking.ServiceEntry_DNS_ROUND_ROBIN: model.ResolutionDNSRoundRobin,
	networking.ServiceEntry_DYNAMIC_DNS:     model.ResolutionDynamicDNS,
}

// ServiceEntry decodes a ServiceEntry.
func ServiceEntry(in convert.Cluster, o *networkingv1.ServiceEntry) (*model.ServiceEntry, problem.List) {
	c := entryConv{convert.Start(in, model.KindServiceEntry, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	e := &model.ServiceEntry{Meta: c.Meta, Hosts: c.entryHosts(at.Field("hosts"), spec), Status: assignedAddresses(&o.Status)}
	e.Template = model.Service{
		Addresses:       c.Prefixes(at.Field("addresses"), spec.Addresses),
		Ports:           c.entryPorts(at.Field("ports"), spec.Ports),
		Resolution:      resolutions[spec.Resolution],
		External:        spec.Location == networking.ServiceEntry_MESH_EXTERNAL,
		Visibility:      c.ExportTo(at.Field("exportTo"), spec.ExportTo, true),
		SubjectAltNames: spec.SubjectAltNames,
		Distribution:    c.AnnotatedDistribution(o.Annotations),
	}
	if spec.WorkloadSelector != nil {
		e.Template.Selector = c.Selector(at.Field("workloadSelector"), "labels", spec.WorkloadSelector.Labels)
		if len(spec.Endpoints) > 0 {
			c.Errorf(code.ExclusiveFields, at.Field("endpoints"), "cannot be combined with workloadSelector; remove one of the two")
		}
	}
	e.Template.Headless = isHeadless(spec)
	e.Template.Inline = c.entryEndpoints(at.Field("endpoints"), spec)
	c.entryResolution(at, spec)
	c.entryAddresses(at, spec, !in.NoAutoAddresses && len(e.AutoHosts()) > 0)
	c.tcpHosts(at, spec)
	return e, c.Problems
}

// isHeadless reports whether clients call selected workloads at their own addresses, as those of a headless Service.
func isHeadless(spec *networking.ServiceEntry) bool {
	return spec.Resolution == networking.ServiceEntry_NONE && len(spec.WorkloadSelector.GetLabels()) > 0 && len(spec.Addresses) == 0
}

// assignedAddresses returns the addresses in a status. Invalid ones, which Moonsail does not write, are ignored.
func assignedAddresses(s *networking.ServiceEntryStatus) []model.HostAddress {
	var out []model.HostAddress
	for _, a := range s.GetAddresses() {
		if one, ok := AssignedAddress(a.GetHost(), a.GetValue()); ok {
			out = append(out, one)
		}
	}
	return out
}

// AssignedAddress is an address in the status of a ServiceEntry; false: it is invalid.
func AssignedAddress(host, value string) (model.HostAddress, bool) {
	ip, err := netip.ParseAddr(value)
	if err != nil || host == "" || ip.Zone() != "" || ip.IsUnspecified() || ip.IsLoopback() || ip.IsMulticast() {
		return model.HostAddress{}, false
	}
	return model.HostAddress{Host: hostOf(host), Address: ip.Unmap()}, true
}

// hostOf is a host of a ServiceEntry as the model has it.
func hostOf(text string) model.Host {
	return model.Host(strings.ToLower(strings.TrimSuffix(text, ".")))
}

func (c entryConv) entryHosts(at problem.Path, spec *networking.ServiceEntry) []model.Host {
	if len(spec.Hosts) == 0 {
		c.Errorf(code.MissingField, at, "is missing; a ServiceEntry needs at least one host")
	}
	var out []model.Host
	seen := map[model.Host]bool{}
	for i, h := range spec.Hosts {
		if h == "*" {
			c.Errorf(code.InvalidHost, at.Index(i), "\"*\" would stand for every host; name one, or a wildcard such as *.example.com")
			continue
		}
		if !c.CheckHost(at.Index(i), h, true) {
			continue
		}
		host := hostOf(h)
		if seen[host] {
			c.Warnf(code.ListedTwice, at.Index(i), "%q is listed twice; remove one", h)
			continue
		}
		seen[host] = true
		if host.IsWildcard() && !strings.HasPrefix(string(host), "*.") {
			c.Warnf(code.InvalidHost, at.Index(i), "%q is a partial wildcard; only whole parts match, as in *.example.com", h)
		}
		out = append(out, host)
	}
	return out
}

func (c entryConv) entryPorts(at problem.Path, ports []*networking.ServicePort) []model.ServicePort {
	out := make([]model.ServicePort, 0, len(ports))
	names, numbers := map[string]bool{}, map[uint32]bool{}
	for i, p := range ports {
		at := at.Index(i)
		c.CheckPortName(at.Field("name"), p.Name)
		c.CheckPort(at.Field("number"), p.Number)
		if p.TargetPort != 0 {
			c.CheckPort(at.Field("targetPort"), p.TargetPort)
		}
		if names[p.Name] {
			c.Errorf(code.ListedTwice, at.Field("name"), "%q is the name of two ports; rename one", p.Name)
		}
		if numbers[p.Number] {
			c.Errorf(code.ListedTwice, at.Field("number"), "port %d is listed twice; remove one", p.Number)
		}
		names[p.Name], numbers[p.Number] = true, true
		out = append(out, model.ServicePort{
			Name: p.Name, Number: p.Number, TargetPort: p.TargetPort,
			Protocol: c.Protocol(at.Field("protocol"), p.Protocol),
		})
	}
	return out
}

func (c entryConv) entryEndpoints(at problem.Path, spec *networking.ServiceEntry) []model.Endpoint {
	dns := spec.Resolution == networking.ServiceEntry_DNS || spec.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN
	rules := endpointRules{fqdn: dns, noUnix: dns, service: make([]string, 0, len(spec.Ports))}
	for _, p := range spec.Ports {
		rules.service = append(rules.service, p.Name)
	}
	if spec.Resolution == networking.ServiceEntry_NONE || spec.Resolution == networking.ServiceEntry_DYNAMIC_DNS {
		return nil // reported by entryResolution
	}
	var out []model.Endpoint
	for i, we := range spec.Endpoints {
		if e := c.endpoint(at.Index(i), we, rules); e.Address != "" {
			out = append(out, e)
		}
	}
	return out
}

// entryResolution checks what each resolution needs and cannot have.
func (c entryConv) entryResolution(at problem.Path, spec *networking.ServiceEntry) {
	switch spec.Resolution {
	case networking.ServiceEntry_NONE:
		if len(spec.Endpoints) > 0 {
			c.Errorf(code.NotAllowedHere, at.Field("endpoints"), "resolution NONE sends to the address that the client called; remove the endpoints, or use STATIC or DNS")
		}
	case networking.ServiceEntry_DNS, networking.ServiceEntry_DNS_ROUND_ROBIN:
		c.entryDNS(at, spec)
	case networking.ServiceEntry_DYNAMIC_DNS:
		c.entryDynamicDNS(at, spec)
	case networking.ServiceEntry_STATIC:
	default:
		c.Errorf(code.UnknownValue, at.Field("resolution"), "%d is not a resolution; use NONE, STATIC, DNS, DNS_ROUND_ROBIN or DYNAMIC_DNS", spec.Resolution)
	}
}

func (c entryConv) entryDNS(at problem.Path, spec *networking.ServiceEntry) {
	for i, h := range spec.Hosts {
		if len(spec.Endpoints) == 0 && spec.WorkloadSelector == nil && strings.Contains(h, "*") && convert.HostError(h, true) == "" {
			c.Errorf(code.NotAllowedHere, at.Field("hosts").Index(i), "%q cannot be resolved: add endpoints, or use resolution NONE or DYNAMIC_DNS", h)
		}
	}
	if spec.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN && len(spec.Endpoints) > 1 {
		c.Errorf(code.NotAllowedHere, at.Field("endpoints").Index(1), "DNS_ROUND_ROBIN takes one endpoint at most; remove the others, or use DNS")
	}
}

func (c entryConv) entryDynamicDNS(at problem.Path, spec *networking.ServiceEntry) {
	for i, h := range spec.Hosts {
		if !strings.HasPrefix(h, "*") {
			c.Errorf(code.InvalidHost, at.Field("hosts").Index(i), "%q is not a wildcard, which DYNAMIC_DNS is for; use DNS", h)
		}
	}
	if len(spec.Addresses) > 0 {
		c.Errorf(code.NotAllowedHere, at.Field("addresses"), "cannot be set with DYNAMIC_DNS; remove them")
	}
	if len(spec.Endpoints) > 0 {
		c.Errorf(code.NotAllowedHere, at.Field("endpoints"), "cannot be set with DYNAMIC_DNS, which resolves the host of each request; remove them")
	}
	for i, p := range spec.Ports {
		switch strings.ToUpper(p.Protocol) {
		case "HTTP", "HTTP2", "GRPC", "TLS":
		default:
			c.Errorf(code.NotAllowedHere, at.Field("ports").Index(i).Field("protocol"), "%q cannot be used with DYNAMIC_DNS; use HTTP, HTTP2, GRPC or TLS", p.Protocol)
		}
	}
}

// entryAddresses checks which resolutions can have CIDR blocks, and that TCP ports
// can be distinguished. auto reports whether the mesh gives it addresses.
func (c entryConv) entryAddresses(at problem.Path, spec *networking.ServiceEntry, auto bool) {
	cidrs := spec.Resolution == networking.ServiceEntry_NONE || spec.Resolution == networking.ServiceEntry_STATIC
	for i, a := range spec.Addresses {
		if strings.Contains(a, "/") && !cidrs {
			c.Errorf(code.NotAllowedHere, at.Field("addresses").Index(i), "CIDR blocks are for resolution NONE and STATIC; use single addresses")
		}
	}
	if len(spec.Addresses) > 0 || isHeadless(spec) {
		return
	}
	for i, p := range spec.Ports {
		proto := strings.ToUpper(p.Protocol)
		switch {
		case proto != "" && proto != "TCP":
		case auto:
			c.Add(code.AddressesMissing, problem.SeverityInfo, at.Field("ports").Index(i).Field("protocol"),
				"from callers whose DNS is not captured every connection to port %d that nothing else claims is taken for the service; "+
					"set ISTIO_META_DNS_CAPTURE in their proxyMetadata, or add addresses", p.Number)
		default:
			c.Warnf(code.AddressesMissing, at.Field("ports").Index(i).Field("protocol"),
				"the service has no addresses, so every connection to port %d that nothing else claims is taken for it; add addresses", p.Number)
		}
	}
}

// tcpHosts reports several hosts on a port on which nothing distinguishes them.
func (c entryConv) tcpHosts(at problem.Path, spec *networking.ServiceEntry) {
	if spec.Resolution == networking.ServiceEntry_NONE || len(spec.Hosts) < 2 {
		return
	}
	for i, p := range spec.Ports {
		proto := convert.Protocols[strings.ToLower(p.Protocol)]
		if proto != "" && !proto.IsHTTP() && !proto.IsTLS() {
			c.Errorf(code.NotAllowedHere, at.Field("ports").Index(i).Field("protocol"),
				"several hosts cannot be distinguished on a port that is neither HTTP nor TLS; write a ServiceEntry for each host")
			return
		}
	}
}
