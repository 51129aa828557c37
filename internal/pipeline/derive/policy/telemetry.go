package policy

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Telemetry is what the clients' chains report.
func Telemetry(r *index.Reader) *ir.Telemetry {
	side := model.SideClient
	if r.Key.Inbound {
		side = model.SideServer
	}
	out, _ := telemetryOf(r, telemetries(r), side)
	return out
}

// Provider is a service that listeners call themselves.
type Provider struct {
	Host model.Host
	From *model.Origins // why they call it
}

// Providers are the services that the listeners of the clients call: collectors of both sides, and external authorizers. One
// that several policies name is listed several times.
func Providers(r *index.Reader) []Provider {
	mark := r.Mark()
	rules := telemetries(r)
	_, collectors := telemetryOf(r, rules, model.SideClient)
	if !r.Key.IsRouter() {
		_, others := telemetryOf(r, rules, model.SideServer)
		for _, h := range others {
			collectors = appendHost(collectors, h)
		}
	}
	var out []Provider
	for from := r.Used.Since(mark); len(collectors) > 0; collectors = collectors[1:] {
		out = append(out, Provider{collectors[0], from})
	}
	for _, p := range r.CustomPolicies() {
		mark := r.Mark()
		if a := authorizerOf(r, p.Provider); a != nil && a.Host != "" {
			r.Use(p)
			out = append(out, Provider{a.Host, r.Used.Since(mark)})
		}
	}
	return out
}

// telemetryOf is what the clients' chains of one side report, and the services that receive it.
func telemetryOf(r *index.Reader, rules []*model.Telemetry, side model.Sides) (out *ir.Telemetry, collectors []model.Host) {
	out = &ir.Telemetry{Server: r.Key.Inbound, SendsPeerHeader: !r.Key.Inbound && r.SendsPeerHeader(r.Mesh())}
	out.Metrics, out.Every = metricsOf(rules, r.Mesh(), side)
	for _, l := range logsOf(rules, r.Mesh(), side) {
		if host, ok := resolveLog(r, &l); ok {
			collectors = appendHost(collectors, host)
			out.Logs = append(out.Logs, l.AccessLog)
		}
	}
	if t, provider := tracingOf(rules, r.Key.Tracing.Over(&r.Mesh().Telemetry), side); t != nil {
		if host, cluster, ok := collectorOf(r, provider); ok {
			collectors = appendHost(collectors, host)
			t.Host, t.Cluster = host, cluster
			t.UpstreamSpan = r.Key.IsRouter() // the span of the request is that of a server
			out.Tracing = t
		}
	}
	return out, collectors
}

func appendHost(list []model.Host, h model.Host) []model.Host {
	if h == "" || slices.Contains(list, h) {
		return list
	}
	return append(list, h)
}

// telemetries lists those for the clients. Each overrides those before it.
func telemetries(r *index.Reader) []*model.Telemetry {
	out := model.EffectiveTelemetries(r.Key.Namespace, index.Policies[*model.Telemetry](r, model.KindTelemetry))
	for _, t := range out {
		r.Use(t)
	}
	return out
}

// collectorOf finds the cluster of a provider's service. It returns false if there is no such service: Envoy would refuse
// what refers to it, or wait for it.
func collectorOf(r *index.Reader, p *model.Provider) (model.Host, string, bool) {
	svc := r.Service(p.Host)
	if svc == nil || p.Namespace != "" && svc.Namespace != p.Namespace {
		return "", "", false
	}
	if !slices.ContainsFunc(svc.Ports, func(port model.ServicePort) bool { return port.Number == p.Port }) {
		return "", "", false
	}
	return p.Host, ir.OutboundCluster(p.Port, "", p.Host), true
}
