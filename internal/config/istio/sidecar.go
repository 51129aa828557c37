package istio

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

var captureModes = map[networking.CaptureMode]model.CaptureMode{
	networking.CaptureMode_DEFAULT:  model.CaptureDefault,
	networking.CaptureMode_IPTABLES: model.CaptureIPTables,
	networking.CaptureMode_NONE:     model.CaptureNone,
}

// Sidecar decodes a Sidecar.
func Sidecar(in convert.Cluster, o *networkingv1.Sidecar) (*model.Sidecar, problem.List) {
	c := sidecarConv{convert.Start(in, model.KindSidecar, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	s := &model.Sidecar{Meta: c.Meta, InboundPool: c.inboundPool(at.Field("inboundConnectionPool"), spec.InboundConnectionPool)}
	if spec.WorkloadSelector != nil {
		s.Selector = c.Selector(at.Field("workloadSelector"), "labels", spec.WorkloadSelector.Labels)
	}
	if len(spec.Egress) == 0 && len(spec.Ingress) == 0 && spec.OutboundTrafficPolicy == nil && spec.InboundConnectionPool == nil {
		c.Errorf(code.EmptyValue, at, "is empty; set at least one of egress, ingress, outboundTrafficPolicy and inboundConnectionPool")
	}
	s.Ingress = c.ingress(at.Field("ingress"), spec.Ingress)
	s.Egress = c.egress(at.Field("egress"), spec.Egress)
	c.outboundPolicy(at.Field("outboundTrafficPolicy"), spec.OutboundTrafficPolicy, s)
	return s, c.Problems
}

func (c sidecarConv) outboundPolicy(at problem.Path, p *networking.OutboundTrafficPolicy, s *model.Sidecar) {
	if p == nil {
		return
	}
	s.Outbound = model.OutboundMode(p.Mode.String())
	if p.EgressProxy == nil {
		return
	}
	if p.Mode != networking.OutboundTrafficPolicy_ALLOW_ANY {
		c.Errorf(code.NotAllowedHere, at.Field("egressProxy"), "has no effect unless mode is ALLOW_ANY; set mode")
	}
	if p.EgressProxy.Port == nil {
		c.Errorf(code.MissingField, at.Field("egressProxy").Field("port"), "is missing; set the port of the egress proxy, as port: {number: 443}")
	}
	dest := virtualServiceConv(c).destination(at.Field("egressProxy"), p.EgressProxy)
	s.EgressProxy = &dest
}

func (c sidecarConv) ingress(at problem.Path, list []*networking.IstioIngressListener) []model.IngressListener {
	var out []model.IngressListener
	seen := map[uint32]bool{}
	for i, l := range list {
		at := at.Index(i)
		if l.Port == nil {
			c.Errorf(code.MissingField, at.Field("port"), "is missing; set number and protocol")
			continue
		}
		port := c.sidecarPort(at.Field("port"), l.Port)
		c.CheckPort(at.Field("port").Field("number"), l.Port.Number)
		if seen[l.Port.Number] {
			c.Errorf(code.ListedTwice, at.Field("port").Field("number"), "port %d has two listeners; remove one", l.Port.Number)
		}
		seen[l.Port.Number] = true
		c.bindIP(at.Field("bind"), l.Bind)
		in := model.IngressListener{
			Port: port, Bind: l.Bind, Capture: captureModes[l.CaptureMode],
			Endpoint: c.defaultEndpoint(at.Field("defaultEndpoint"), l.DefaultEndpoint),
			Pool:     c.inboundPool(at.Field("connectionPool"), l.ConnectionPool),
			TLS:      c.ingressTLS(at.Field("tls"), port.Protocol, l.Tls),
		}
		if l.ConnectionPool.GetHttp() != nil && !in.Inner().IsHTTP() {
			c.Warnf(code.NoEffect, at.Field("connectionPool").Field("http"), "has no effect on a port that is not HTTP; set the port's protocol")
		}
		out = append(out, in)
	}
	return out
}

// ingressTLS is nil where no TLS ends but the mesh's.
func (c sidecarConv) ingressTLS(at problem.Path, p model.Protocol, t *networking.ServerTLSSettings) *model.ServerTLS {
	switch {
	case t == nil:
		return nil
	case !p.IsTLS():
		c.Errorf(code.NotAllowedHere, at, "is not for %s; set port.protocol to HTTPS where requests are inside, or to TLS", p)
		return nil
	case t.Mode == networking.ServerTLSSettings_ISTIO_MUTUAL || t.Mode == networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		c.Errorf(code.NotAllowedHere, at.Field("mode"), "%s is not for Sidecars; use SIMPLE or MUTUAL (a PeerAuthentication sets the mode of the mesh's own TLS)", t.Mode)
		return nil
	}
	if t.HttpsRedirect {
		c.Errorf(code.NotAllowedHere, at.Field("httpsRedirect"), "is not for Sidecars; remove it")
	}
	if out := gatewayConv(c).serverTLS(at, t); out.EndsTLS() {
		return out
	}
	return nil
}

func (c sidecarConv) sidecarPort(at problem.Path, p *networking.SidecarPort) model.SidecarPort {
	if p.Name != "" {
		c.CheckPortName(at.Field("name"), p.Name)
	}
	if p.TargetPort > 0 { //nolint:staticcheck // to report it
		c.Errorf(code.NotAllowedHere, at.Field("targetPort"), "has no effect here; use defaultEndpoint")
	}
	return model.SidecarPort{Number: p.Number, Name: p.Name, Protocol: c.Protocol(at.Field("protocol"), p.Protocol)}
}

func (c sidecarConv) bindIP(at problem.Path, bind string) {
	if bind != "" && !model.IsIP(bind) {
		c.Errorf(code.InvalidFormat, at, "%q is not an IP address; write one such as 127.0.0.1, or leave it out", bind)
	}
}

// inboundPool are the limits of connections to the application.
func (c sidecarConv) inboundPool(at problem.Path, p *networking.ConnectionPoolSettings) *model.ConnectionPool {
	if p.GetHttp().GetH2UpgradePolicy() != networking.ConnectionPoolSettings_HTTPSettings_DEFAULT {
		c.Warnf(code.NoEffect, at.Field("http").Field("h2UpgradePolicy"), "has no effect on connections to the application; set it in a DestinationRule, for clients")
	}
	return destinationConv(c).connectionPool(at, p)
}

// defaultEndpoint takes "127.0.0.1:8080", "0.0.0.0:8080" (the workload's own address),
// "[::1]:8080", "[::]:8080", ":8080" and "unix:///path".
func (c sidecarConv) defaultEndpoint(at problem.Path, e string) string {
	if e == "" {
		return ""
	}
	if strings.HasPrefix(e, convert.UnixPrefix) {
		c.CheckUnix(at, e)
		return e
	}
	host, port, err := net.SplitHostPort(e)
	n, perr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || perr != nil || n == 0:
		c.Errorf(code.InvalidFormat, at, "%q is not an endpoint; write 127.0.0.1:8080, 0.0.0.0:8080, [::1]:8080, or unix:///path", e)
	case host == "":
		return "127.0.0.1:" + port
	case host != "127.0.0.1" && host != "0.0.0.0" && host != "::1" && host != "::":
		c.Errorf(code.InvalidFormat, at, "%q is another machine; the application is at 127.0.0.1, 0.0.0.0 (the workload's address), [::1] or [::]", host)
	}
	return e
}

func (c sidecarConv) egress(at problem.Path, list []*networking.IstioEgressListener) []model.EgressListener {
	var out []model.EgressListener
	seen := map[string]bool{}
	for i, l := range list {
		at := at.Index(i)
		e := model.EgressListener{
			Bind: l.Bind, Capture: captureModes[l.CaptureMode], Hosts: c.egressHosts(at.Field("hosts"), l.Hosts),
		}
		if l.Port == nil {
			if i != len(list)-1 {
				c.Errorf(code.MissingField, at.Field("port"), "is missing; only the last listener can be for all ports: move it to the end, or set a port")
			}
			c.bindIP(at.Field("bind"), l.Bind)
		} else {
			port := c.sidecarPort(at.Field("port"), l.Port)
			e.Port = &port
			c.egressPort(at, l, seen)
		}
		out = append(out, e)
	}
	return out
}

// egressPort checks port, bind and capture mode, which depend on each other.
func (c sidecarConv) egressPort(at problem.Path, l *networking.IstioEgressListener, seen map[string]bool) {
	key := strconv.Itoa(int(l.Port.Number))
	if l.Port.Number == 0 {
		key = l.Bind
		if !strings.HasPrefix(l.Bind, convert.UnixPrefix) {
			c.Errorf(code.MissingField, at.Field("port").Field("number"), "is missing; use 1 to 65535, or bind to unix:///path")
			return
		}
		c.CheckUnix(at.Field("bind"), l.Bind)
		if l.CaptureMode == networking.CaptureMode_IPTABLES {
			c.Errorf(code.NotAllowedHere, at.Field("captureMode"), "IPTABLES cannot capture a Unix socket; use NONE")
		}
	} else {
		c.CheckPort(at.Field("port").Field("number"), l.Port.Number)
		c.bindIP(at.Field("bind"), l.Bind)
	}
	if seen[key] {
		c.Errorf(code.ListedTwice, at.Field("port").Field("number"), "%s has two listeners; merge their hosts", key)
	}
	seen[key] = true
}

func (c sidecarConv) egressHosts(at problem.Path, list []string) []model.HostSelector {
	if len(list) == 0 {
		c.Errorf(code.MissingField, at, "is missing; name hosts as namespace/host, such as \"./*\" for this namespace")
	}
	var out []model.HostSelector
	seen := map[model.HostSelector]bool{}
	for i, h := range list {
		sel, ok := c.egressHost(at.Index(i), h)
		if !ok {
			continue
		}
		if seen[sel] || seen[model.HostSelector{Namespace: sel.Namespace, Host: "*"}] && !sel.Exclude {
			c.Warnf(code.ListedTwice, at.Index(i), "%q is selected by an entry before it; remove one", h)
		}
		if sel.Namespace == convert.ExportNone && len(list) > 1 {
			c.Warnf(code.NoEffect, at.Index(i), "excludes every host, so the other entries have no effect; remove them, or this one")
			return []model.HostSelector{sel}
		}
		seen[sel] = true
		out = append(out, sel)
	}
	return out
}

// egressHost reads "namespace/host"; a "~" before the namespace excludes.
func (c sidecarConv) egressHost(at problem.Path, s string) (model.HostSelector, bool) {
	ns, host, ok := strings.Cut(s, "/")
	if !ok || ns == "" || host == "" {
		c.Errorf(code.InvalidFormat, at, "%q is not of the form namespace/host; write \"./%s\" for this namespace, or \"*/%s\" for all", s, orStar(s), orStar(s))
		return model.HostSelector{}, false
	}
	sel := model.HostSelector{Namespace: ns, Host: model.Host(strings.ToLower(strings.TrimSuffix(host, ".")))}
	if ns == convert.ExportNone && host == "*" {
		return sel, true
	}
	if rest, excluded := strings.CutPrefix(ns, convert.ExportNone); excluded {
		sel.Exclude = true
		sel.Namespace = cmp.Or(rest, convert.ExportAll)
	}
	if sel.Namespace != convert.ExportAll && sel.Namespace != model.HostsHere && !convert.IsLabel(sel.Namespace) {
		c.Errorf(code.InvalidName, at, "%q is not a namespace; use \".\", \"*\", \"~\" or the name of one", ns)
		return sel, false
	}
	if host == "*" {
		return sel, true
	}
	if !strings.Contains(host, ".") {
		c.Errorf(code.InvalidHost, at, "%q is a short name; write %s.%s.svc.%s", host, host, c.namespaceOf(sel), c.Domain)
		return sel, false
	}
	if strings.HasPrefix(host, "*") && !strings.HasPrefix(host, "*.") {
		c.Errorf(code.InvalidHost, at, "%q is a partial wildcard; only whole parts can be left open, as in *.example.com", host)
		return sel, false
	}
	return sel, c.CheckHost(at, host, true)
}

func orStar(s string) string { return cmp.Or(strings.Trim(s, "/"), "*") }

func (c sidecarConv) namespaceOf(sel model.HostSelector) string {
	switch sel.Namespace {
	case convert.ExportAll:
		return "NAMESPACE"
	case model.HostsHere:
		return c.Meta.Namespace
	}
	return sel.Namespace
}
