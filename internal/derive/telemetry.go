package derive

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// deriveTelemetry finds what the scope's chains tell. Where that differs from before, every
// listener is derived again. It comes before all else: hosts tell of collectors.
func (s *scope) deriveTelemetry(r *reader) {
	rules := s.telemetries(r)
	side := model.SideClient
	if s.Key.Inbound {
		side = model.SideServer
	}
	now := &view.Telemetry{Server: s.Key.Inbound}
	now.Metrics, now.Every = metricsOf(rules, r.mesh(), side)
	var collectors []model.Host
	for _, l := range logsOf(rules, r.mesh(), side) {
		if host, ok := resolveLog(r, &l); ok {
			collectors = appendHost(collectors, host)
			now.Logs = append(now.Logs, l.AccessLog)
		}
	}
	if t, provider := tracingOf(rules, r.mesh(), side); t != nil {
		if host, cluster, ok := collectorOf(r, provider); ok {
			collectors = appendHost(collectors, host)
			t.Host, t.Cluster = host, cluster
			now.Tracing = t
		}
	}
	s.replaceCollectors(collectors)
	if reflect.DeepEqual(now, s.telemetry) {
		return
	}
	s.telemetry = now
	s.markTelling(r.mesh())
}

func appendHost(list []model.Host, h model.Host) []model.Host {
	if h == "" || slices.Contains(list, h) {
		return list
	}
	return append(list, h)
}

// markTelling derives all listeners again.
func (s *scope) markTelling(mesh *model.Mesh) {
	if s.Key.Inbound {
		s.mark(unit{kind: unitInbound})
		return
	}
	s.markListeners()
	s.deriveCatchAll(mesh)
}

// replaceCollectors keeps the clusters of services that telemetry goes to, however egress
// is narrowed. An inbound scope's are in the outbound one: Telemetries are for both.
func (s *scope) replaceCollectors(now []model.Host) {
	if s.Key.Inbound {
		return
	}
	for _, h := range now {
		if s.refs[h]++; s.refs[h] == 1 {
			s.mark(hostUnit(h))
		}
	}
	for _, h := range s.collectors {
		s.unref(h)
	}
	s.collectors = now
}

// observe has a listener's chains tell what the scope's Telemetry says. Connections to the
// sidecar's own port, which are closed, are nobody's calls.
func (s *scope) observe(l *view.Listener) {
	for i := range l.Chains {
		s.observeChain(&l.Chains[i])
	}
	if l.Default != nil {
		s.observeChain(l.Default)
	}
}

func (s *scope) observeChain(c *view.FilterChain) {
	switch {
	case strings.HasSuffix(c.Name, blackHoleSuffix):
	case c.HTTP != nil: // a copy: what has been put out does not change
		http := *c.HTTP
		http.Telemetry, http.PeerTold, c.HTTP = s.telemetry, c.TLS != nil && c.TLS.IsMesh() && s.Key.Inbound, &http
		http.Uncounted = s.Key.Uncounted
	case c.TCP != nil:
		tcp := *c.TCP
		tcp.Telemetry, c.TCP = s.telemetry, &tcp
	}
}

// telemetries are those for the scope's workloads, each over those before.
func (s *scope) telemetries(r *reader) []*model.Telemetry {
	return model.EffectiveTelemetries(s.Key.Namespace, policies[*model.Telemetry](r, model.KindTelemetry, s.Key.Namespace, s.labels))
}

// collectorOf finds the cluster of a provider's service; not ok where there is no such
// service: Envoy would refuse, or wait for, what refers to it.
func collectorOf(r *reader, p *model.Provider) (model.Host, string, bool) {
	svc := r.service(p.Host)
	if svc == nil || p.Namespace != "" && svc.Namespace != p.Namespace {
		return "", "", false
	}
	if !slices.ContainsFunc(svc.Ports, func(port model.ServicePort) bool { return port.Number == p.Port }) {
		return "", "", false
	}
	return p.Host, outboundCluster(p.Port, "", p.Host), true
}

// resolveLog finds where a log goes. The host is empty for files.
func resolveLog(r *reader, l *logRule) (model.Host, bool) {
	if l.Kind == model.ProviderFileLog {
		return "", true
	}
	host, cluster, ok := collectorOf(r, l.provider)
	l.Cluster = cluster
	return host, ok
}

// metricsOf are the metrics of one side, as Istio merges them, and how often those of connections that go on
// are counted.
func metricsOf(rules []*model.Telemetry, mesh *model.Mesh, side model.Sides) ([]view.Metric, time.Duration) {
	var list []model.MetricsRule
	for _, t := range rules {
		list = append(list, t.Metrics...)
	}
	scope := mesh.Telemetry.Metrics
	for _, m := range list {
		if len(m.Providers) > 0 {
			scope = m.Providers
		}
	}
	for _, name := range scope {
		if p := mesh.Telemetry.Provider(name); p != nil && p.Kind == model.ProviderPrometheus {
			return mergeMetrics(list, mesh.Telemetry.Metrics, name, side)
		}
	}
	return nil, 0
}

// metricState is what rules make of one metric.
type metricState struct {
	disabled bool
	tags     map[string]model.TagOverride
}

// mergeMetrics applies the rules for one provider. Rules without providers are for those of
// the rule before.
func mergeMetrics(list []model.MetricsRule, inherited []string, provider string, side model.Sides) ([]view.Metric, time.Duration) {
	states, off, every := map[model.Metric]*metricState{}, false, model.DefaultReporting
	for _, m := range model.Metrics {
		states[m] = &metricState{tags: map[string]model.TagOverride{}}
	}
	for _, rule := range list {
		if len(rule.Providers) > 0 {
			inherited = rule.Providers
		}
		if !slices.Contains(inherited, provider) {
			continue
		}
		every = cmp.Or(rule.Every, every)
		for i := range rule.Overrides {
			if o := &rule.Overrides[i]; o.Sides&side != 0 {
				off = applyMetric(states, o)
			}
		}
	}
	if off {
		return nil, 0
	}
	return metricViews(states), every
}

// applyMetric applies one override, and tells whether it turns everything off. A later one
// about anything turns the rest on again, as in Istio.
func applyMetric(states map[model.Metric]*metricState, o *model.MetricOverride) bool {
	if o.Metric == "" && o.Disabled != nil && *o.Disabled {
		return true
	}
	for m, state := range states {
		if o.Metric != "" && o.Metric != m {
			continue
		}
		if o.Disabled != nil {
			state.disabled = *o.Disabled
		}
		for _, t := range o.Tags {
			state.tags[t.Name] = t
		}
	}
	return false
}

func metricViews(states map[model.Metric]*metricState) []view.Metric {
	var out []view.Metric
	for _, m := range model.Metrics {
		state := states[m]
		if state.disabled {
			continue
		}
		v := view.Metric{Metric: m}
		for _, name := range slices.Sorted(maps.Keys(state.tags)) {
			if t := state.tags[name]; t.Remove {
				v.Removed = append(v.Removed, name)
			} else {
				v.Tags = append(v.Tags, view.MetricTag{Name: name, Format: t.Format})
			}
		}
		out = append(out, v)
	}
	return out
}

// logRule is an access log, and the provider whose service gets it.
type logRule struct {
	view.AccessLog
	provider *model.Provider
}

// logsOf are the access logs of one side, by the providers' names.
func logsOf(rules []*model.Telemetry, mesh *model.Mesh, side model.Sides) []logRule {
	asked := slices.ContainsFunc(rules, func(t *model.Telemetry) bool { return len(t.Logging) > 0 })
	if !asked && len(mesh.Telemetry.Logging) == 0 {
		return meshLog(mesh)
	}
	var out []logRule
	for name, filter := range loggingProviders(rules, mesh.Telemetry.Logging, side) {
		if p := mesh.Telemetry.Provider(name); p != nil && p.Kind.IsLog() {
			out = append(out, logOf(p, filter))
		}
	}
	slices.SortFunc(out, func(a, b logRule) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// meshLog is the mesh's accessLogFile.
func meshLog(mesh *model.Mesh) []logRule {
	if mesh.AccessLogFile == "" {
		return nil
	}
	format := mesh.Telemetry.AccessLog
	format.Path = mesh.AccessLogFile
	return []logRule{{AccessLog: view.AccessLog{Name: "mesh", Kind: model.ProviderFileLog, Format: format}}}
}

func logOf(p *model.Provider, filter string) logRule {
	return logRule{provider: p, AccessLog: view.AccessLog{
		Name: p.Name, Kind: p.Kind, Format: p.Log, Filter: filter, LogName: p.LogName, FilterState: p.FilterState,
		RequestHeaders: p.RequestHeaders, ResponseHeaders: p.ResponseHeaders, Trailers: p.Trailers,
	}}
}

// loggingProviders are the providers that log, with their filters. Of the Telemetries that
// name providers for the side the last one's count; of the rules about one of them the last
// one says whether it logs, and the last one that names it what.
func loggingProviders(rules []*model.Telemetry, defaults []string, side model.Sides) map[string]string {
	out := map[string]string{}
	if !slices.ContainsFunc(rules, func(t *model.Telemetry) bool { return len(t.Logging) > 0 }) {
		for _, p := range defaults {
			out[p] = ""
		}
		return out
	}
	scope, filters := namedLogs(rules, defaults, side)
	inherited := defaults
	for _, t := range rules {
		for _, l := range t.Logging {
			if len(l.Providers) > 0 {
				inherited = l.Providers
			}
			for _, p := range inherited {
				switch {
				case l.Sides&side == 0 || !slices.Contains(scope, p):
				case l.Disabled != nil && *l.Disabled:
					delete(out, p)
				default:
					out[p] = filters[p]
				}
			}
		}
	}
	return out
}

// namedLogs are the providers that count, and the filters of those that are named.
func namedLogs(rules []*model.Telemetry, defaults []string, side model.Sides) (scope []string, filters map[string]string) {
	scope, filters = defaults, map[string]string{}
	for _, t := range rules {
		var named []string
		for _, l := range t.Logging {
			if l.Sides&side == 0 {
				continue
			}
			named = append(named, l.Providers...)
			for _, p := range l.Providers {
				filters[p] = l.Filter
			}
		}
		if len(named) > 0 {
			scope = named
		}
	}
	return scope, filters
}

// tellsPeer tells whether callers may say who they are: all that routes lead to is of the
// mesh, whose metrics need it.
func (rt *routing) tellsPeer(routes []view.Route) bool {
	return rt.service != nil && rt.allOfMesh(routes)
}

// allOfMesh tells whether all that routes lead to is of the mesh, whose metrics name callers.
func (rt *routing) allOfMesh(routes []view.Route) bool {
	if len(rt.mesh().Telemetry.Metrics) == 0 {
		return false
	}
	for i := range routes {
		for _, b := range routes[i].Backends {
			if !rt.isOfMesh(b.Cluster) {
				return false
			}
		}
		for _, m := range routes[i].Mirrors {
			if !rt.isOfMesh(m.Cluster) {
				return false
			}
		}
	}
	return true
}

func (rt *routing) isOfMesh(cluster string) bool {
	svc := rt.reader.service(model.Host(cluster[strings.LastIndexByte(cluster, '|')+1:]))
	return svc != nil && !svc.External && svc.ExternalName == ""
}
