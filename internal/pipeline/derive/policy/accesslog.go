package policy

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// resolveLog finds the service that receives a log. The host is empty for files.
func resolveLog(r *index.Reader, l *logRule) (model.Host, bool) {
	if l.Kind == model.ProviderFileLog {
		return "", true
	}
	host, cluster, ok := collectorOf(r, l.provider)
	l.Host, l.Cluster = host, cluster
	return host, ok
}

// logRule is an access log with its provider.
type logRule struct {
	ir.AccessLog
	provider *model.Provider
}

// logsOf are the access logs of one side, sorted by the providers' names. As in Istio the mesh's accessLogFile counts if the
// rules name no provider of logs for this side.
func logsOf(rules []*model.Telemetry, mesh *model.Mesh, side model.Sides) []logRule {
	var out []logRule
	providers, off := loggingProviders(rules, mesh, side)
	toFile := !off
	for name, l := range providers {
		toFile = false
		if !l.disabled {
			out = append(out, logOf(mesh.Telemetry.Provider(name), l.filter))
		}
	}
	if toFile {
		return meshLog(mesh)
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
	return []logRule{{AccessLog: ir.AccessLog{Name: "mesh", Kind: model.ProviderFileLog, Format: format}}}
}

func logOf(p *model.Provider, filter string) logRule {
	return logRule{provider: p, AccessLog: ir.AccessLog{
		Name: p.Name, Kind: p.Kind, Format: p.Log, Filter: filter, LogName: p.LogName, FilterState: p.FilterState,
		RequestHeaders: p.RequestHeaders, ResponseHeaders: p.ResponseHeaders, Trailers: p.Trailers,
	}}
}

// providerLog is what the rules make of one provider.
type providerLog struct {
	filter   string
	disabled bool
}

// loggingProviders are the providers of logs that the rules are about. The last Telemetry that names providers for the side
// decides which providers count. The last rule about a provider decides whether it logs, and the last rule that names it
// decides the filter. off reports whether the last rule that names no provider and is about none disables logs.
func loggingProviders(rules []*model.Telemetry, mesh *model.Mesh, side model.Sides) (out map[string]providerLog, off bool) {
	out = map[string]providerLog{}
	defaults := mesh.Telemetry.Logging
	if !slices.ContainsFunc(rules, func(t *model.Telemetry) bool { return len(t.Logging) > 0 }) {
		for _, p := range logProviders(mesh, defaults) {
			out[p] = providerLog{}
		}
		return out, false
	}
	counting, filters := namedLogs(rules, defaults, side)
	counting = logProviders(mesh, counting)
	inherited := defaults
	for _, t := range rules {
		for _, l := range t.Logging {
			if len(l.Providers) > 0 {
				inherited = l.Providers
			}
			if l.Sides&side == 0 {
				continue
			}
			disabled := l.Disabled != nil && *l.Disabled
			about := slices.DeleteFunc(slices.Clone(inherited), func(p string) bool { return !slices.Contains(counting, p) })
			if len(l.Providers)+len(about) == 0 {
				off = disabled
			}
			for _, p := range about {
				out[p] = providerLog{filter: filters[p], disabled: disabled}
			}
		}
	}
	return out, off
}

// logProviders returns those of a list that the mesh has and that are for logs.
func logProviders(mesh *model.Mesh, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		p := mesh.Telemetry.Provider(name)
		return p == nil || !p.Kind.IsLog()
	})
}

// namedLogs returns the providers that count, and the filters of named providers.
func namedLogs(rules []*model.Telemetry, defaults []string, side model.Sides) (counting []string, filters map[string]string) {
	counting, filters = defaults, map[string]string{}
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
			counting = named
		}
	}
	return counting, filters
}
