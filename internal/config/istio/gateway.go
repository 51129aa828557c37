package istio

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// Gateway decodes a Gateway.
func (d Decoder) Gateway(o *networkingv1.Gateway) (*model.Gateway, Problems) {
	c := d.start(model.KindGateway, &o.ObjectMeta)
	at, spec := path("spec"), &o.Spec
	g := &model.Gateway{Meta: c.meta}
	if !isLabel(o.Name) {
		c.errorf(path("metadata").f("name"), "%q cannot be a Gateway's name, which is part of others: leave out dots, and use at most 63 characters", o.Name)
	}
	if len(spec.Selector) > 0 {
		g.Selector = c.selector(at, "selector", spec.Selector)
	} else {
		c.add(SeverityInfo, at.f("selector"), "is missing, so every router of the mesh serves this gateway; name labels of one")
	}
	if len(spec.Servers) == 0 {
		c.errorf(at.f("servers"), "is missing; give at least one, with port and hosts")
	}
	names := map[string]bool{}
	for i, s := range spec.Servers {
		at := at.f("servers").i(i)
		if name := s.GetPort().GetName(); name != "" {
			if names[name] {
				c.errorf(at.f("port").f("name"), "%q is the name of two ports; rename one", name)
			}
			names[name] = true
		}
		if server, ok := c.gatewayServer(at, s); ok {
			g.Servers = append(g.Servers, server)
		}
	}
	return g, c.list
}

func (c *conv) gatewayServer(at path, s *networking.Server) (model.GatewayServer, bool) {
	out := model.GatewayServer{Name: s.Name, Bind: s.Bind}
	if strings.HasPrefix(s.Bind, unixPrefix) {
		c.warnf(at.f("bind"), "Unix sockets are not supported, so this server has no effect; use a port")
		return out, false
	}
	c.bindIP(at.f("bind"), s.Bind)
	if s.DefaultEndpoint != "" {
		c.warnf(at.f("defaultEndpoint"), "has no effect; a VirtualService that is bound to the gateway says where calls go")
	}
	if s.Port == nil {
		c.errorf(at.f("port"), "is missing; give number, name and protocol")
		return out, false
	}
	out.Port = c.gatewayPort(at.f("port"), s.Port)
	out.Hosts = c.gatewayHosts(at.f("hosts"), s)
	out.TLS = c.gatewayTLS(at.f("tls"), out.Port.Protocol, s.Tls)
	out.HTTPSRedirect = s.Tls.GetHttpsRedirect() && out.Port.Protocol.IsHTTP()
	return out, true
}

func (c *conv) gatewayPort(at path, p *networking.Port) model.GatewayPort {
	c.checkPort(at.f("number"), p.Number)
	c.checkPortName(at.f("name"), p.Name)
	if p.TargetPort > 0 { //nolint:staticcheck // to report it
		c.errorf(at.f("targetPort"), "has no effect here; the router's Service says its target port")
	}
	out := model.GatewayPort{Number: p.Number, Name: p.Name, Protocol: c.protocol(at.f("protocol"), p.Protocol)}
	switch out.Protocol {
	case model.ProtocolAuto:
		if p.Protocol == "" {
			c.errorf(at.f("protocol"), "is missing; use HTTP, HTTPS, GRPC, HTTP2, TLS or TCP")
		}
	case model.ProtocolUDP:
		c.errorf(at.f("protocol"), "UDP is not for gateways; use HTTP, HTTPS, GRPC, HTTP2, TLS or TCP")
	}
	return out
}

// gatewayHosts reads hosts, with or without a namespace. They are full names.
func (c *conv) gatewayHosts(at path, s *networking.Server) []model.HostSelector {
	if len(s.Hosts) == 0 {
		c.errorf(at, "is missing; name hosts, or \"*\" for all")
	}
	var out []model.HostSelector
	for i, text := range s.Hosts {
		sel := model.HostSelector{Namespace: exportAll}
		host := text
		if ns, rest, ok := strings.Cut(text, "/"); ok {
			sel.Namespace, host = ns, rest
		}
		if sel.Namespace == exportHere {
			sel.Namespace = c.meta.Namespace
		}
		if sel.Namespace != exportAll && !isLabel(sel.Namespace) {
			c.errorf(at.i(i), "%q is not a namespace; write host, ./host, */host or namespace/host", sel.Namespace)
			continue
		}
		if !c.checkHost(at.i(i), host, true) {
			continue
		}
		if s.Tls != nil && strings.HasPrefix(host, "*") && host != "*" && !strings.HasPrefix(host, "*.") {
			c.errorf(at.i(i), "%q is a partial wildcard, which cannot be told by SNI; leave whole parts open, as in *.example.com", host)
			continue
		}
		sel.Host = model.Host(strings.ToLower(strings.TrimSuffix(host, ".")))
		if slices.Contains(out, sel) {
			c.warnf(at.i(i), "%q is listed twice; remove one", text)
			continue
		}
		out = append(out, sel)
	}
	return out
}

// gatewayTLS is nil for plain text, also where requests are redirected from it.
func (c *conv) gatewayTLS(at path, p model.Protocol, t *networking.ServerTLSSettings) *model.ServerTLS {
	switch {
	case t == nil && p.IsTLS():
		c.errorf(at, "is missing, which %s needs; give mode, and credentialName for SIMPLE and MUTUAL", p)
		return nil
	case t == nil:
		return nil
	case p.IsHTTP():
		if t.Mode != networking.ServerTLSSettings_PASSTHROUGH || hasServerFiles(t) {
			c.errorf(at, "is not for ports in plain text, where only httpsRedirect has a meaning; set port.protocol to HTTPS")
		}
		return nil
	case !p.IsTLS():
		c.errorf(at, "is not for %s; set port.protocol to TLS, or to HTTPS", p)
		return nil
	}
	if t.HttpsRedirect {
		c.warnf(at.f("httpsRedirect"), "has no effect on TLS connections; set it at a server whose port.protocol is HTTP")
	}
	return c.serverTLS(at, t)
}

func hasServerFiles(t *networking.ServerTLSSettings) bool {
	return t.ServerCertificate != "" || t.PrivateKey != "" || t.CaCertificates != "" || len(t.TlsCertificates) > 0
}
