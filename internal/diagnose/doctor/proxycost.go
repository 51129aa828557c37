package doctor

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

var watchdogMissed = regexp.MustCompile(`(^|\.)watchdog_(miss|mega_miss)$`)

func (p *proxy) eventLoops() verdict {
	if list := p.matching(watchdogMissed); len(list) > 0 {
		return checked(Finding{
			Severity: Warning, What: "threads of Envoy were blocked for 200 ms and more: all their connections waited",
			Evidence: append(formatted(list), p.subject.Seen),
			Advice:   []string{"set a CPU limit that does not throttle bursts; reduce large route tables with Sidecar resources; find the cause with 'moonsail profile'"},
		})
	}
	return checked()
}

// overflow matches what circuit breakers reject. Envoy counts requests over http2MaxRequests as active, before 1.38 as pending.
var overflow = regexp.MustCompile(`^cluster\..*\.upstream_(cx|cx_pool|rq_active|rq_pending|rq_retry)_overflow$`)

func (p *proxy) limits() verdict {
	if list := p.matching(overflow); len(list) > 0 {
		return checked(Finding{
			Severity: Critical, What: "circuit breakers reject calls (503, flag UO)", Evidence: append(formatted(list), p.subject.Seen),
			Advice: []string{"DestinationRule connectionPool: maxConnections, http1MaxPendingRequests, http2MaxRequests, maxRetries; or more endpoints"},
		})
	}
	if !p.has(overflow) {
		return checked(unseen("unknown whether circuit breakers reject calls", []string{"cluster.*.upstream_*_overflow"}, "statsInclusionSuffixes", "_overflow"))
	}
	return checked()
}

var (
	outboundCalls = regexp.MustCompile(`^cluster\.(outbound\|.+?)(?:;)?\.upstream_(?:rq|cx)_total$`)
	// There is a finding if few of many services are called.
	manyServices = 50
	fewUsed      = 0.25
)

// unusedServices finds configuration that a Sidecar resource would save. Envoy counts for a cluster from
// its first call or from the start. If no cluster has counters, there is no finding.
func (p *proxy) unusedServices() verdict {
	all, used := map[string]bool{}, map[string]bool{}
	for i := range p.Hosts {
		name := p.Hosts[i].Cluster
		if c, ok := resourcename.ParseCluster(name); ok && c.Direction == resourcename.Outbound {
			all[name] = true
			if p.Hosts[i].Connects > 0 {
				used[name] = true
			}
		}
	}
	for name, n := range p.Now {
		if m := outboundCalls.FindStringSubmatch(name); m != nil && n > 0 {
			used[m[1]] = true
		}
	}
	if len(all) < manyServices || len(used) == 0 {
		return nothing
	}
	if float64(len(used)) > fewUsed*float64(len(all)) {
		return checked()
	}
	const few = 8
	names := sortedKeys(used)
	more := ""
	if len(names) > few {
		more = fmt.Sprintf(" and %d more", len(names)-few)
		names = names[:few]
	}
	return checked(Finding{
		Severity: Warning, What: "most of this Envoy's configuration is for services that it never called",
		Evidence: []string{
			fmt.Sprintf("%d of %d clusters with endpoints were ever used", len(used), len(all)),
			"used: " + strings.Join(names, ", ") + more,
		},
		Advice: []string{"add a Sidecar resource with the used services as egress hosts: changes of other services then cost nothing here"},
	})
}

// costly are filters that run programs on each request, with a cheaper alternative.
var costly = map[string]string{
	"type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm":    "WebAssembly: Istio's statistics are native in newer releases, and in Moonsail; moonsail-lab filters measures what each costs",
	"type.googleapis.com/envoy.extensions.filters.network.wasm.v3.Wasm": "WebAssembly on connections: moonsail-lab filters measures what it costs",
	"type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua":      "Lua: headers can be set by VirtualServices; moonsail-lab filters measures what it costs",
}

func (p *proxy) filters() verdict {
	if p.Filters == nil {
		return nothing
	}
	var f []Finding
	for _, url := range sortedKeys(costly) {
		if n := p.Filters[url]; n > 0 {
			f = append(f, Finding{
				Severity: Warning, What: "a program runs on each request", Evidence: []string{fmt.Sprintf("%d filters of %s", n, strings.TrimPrefix(url, "type.googleapis.com/"))},
				Advice: []string{costly[url]},
			})
		}
	}
	if p.NoFilters != "" {
		f = append(f, Finding{
			Severity: Unknown, What: "unknown which filters run a program on each request", Evidence: []string{p.NoFilters},
			Advice: []string{"ask again: Envoy did not return its configuration"},
		})
	}
	return checked(f...)
}

// manySeries is the number of statistics from which on a scrape takes hundreds of milliseconds of Envoy's
// main thread.
const manySeries = 50_000

func (p *proxy) series() verdict {
	var evidence []string
	if n := len(p.Now); n > manySeries {
		evidence = append(evidence, fmt.Sprintf("%d counters and gauges", n))
	}
	if n := p.Now["server.stats_overflow_counter"]; n > 0 {
		evidence = append(evidence, fmt.Sprintf("server.stats_overflow_counter %d: no room for new statistics", n))
	}
	if len(evidence) == 0 {
		return checked()
	}
	return checked(Finding{
		Severity: Warning, What: "Envoy has too many statistics for a scrape", Evidence: evidence,
		Advice: []string{"narrow proxyStatsMatcher (sidecar.istio.io/statsInclusion… annotations), and tagOverrides of the Telemetry API; Sidecar resources remove statistics of clusters"},
	})
}
