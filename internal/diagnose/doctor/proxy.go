package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// proxy is an Envoy under examination.
type proxy struct {
	*ProxyEvidence
	subject Subject
}

type proxyCheck struct {
	name, looksFor string
	look           func(*proxy) verdict
}

var proxyChecks = []proxyCheck{
	{"connected", "an Envoy without its control plane", (*proxy).connected},
	{"refused-updates", "configuration that this Envoy refused", (*proxy).refusedUpdates},
	{"dead-endpoints", "endpoints that refuse every connection", (*proxy).deadEndpoints},
	{"worker-balance", "connections on few worker threads", (*proxy).workerBalance},
	{"event-loops", "threads that are held up", (*proxy).eventLoops},
	{"limits", "calls that circuit breakers turn away", (*proxy).limits},
	{"unused-services", "configuration for services that are never called", (*proxy).unusedServices},
	{"filters", "filters that cost more than the proxy", (*proxy).filters},
	{"series", "more statistics than a scrape should have", (*proxy).series},
}

func newProxy(e *ProxyEvidence) *proxy {
	s := Subject{Name: e.Address, Kind: Sidecar, Version: e.Version, Seen: "since it started"}
	if e.Before != nil {
		s.Seen = fmt.Sprintf("for %s", e.Over)
	}
	return &proxy{e, s}
}

// counted is what a counter counted while Envoy was watched, or since it started.
func (p *proxy) counted(name string) uint64 {
	if before := p.Before[name]; before <= p.Now[name] {
		return p.Now[name] - before
	}
	return p.Now[name]
}

// matching are the statistics whose names match, with what was counted, those above zero.
func (p *proxy) matching(pattern *regexp.Regexp) map[string]float64 {
	out := map[string]float64{}
	for name := range p.Now {
		if pattern.MatchString(name) {
			if n := p.counted(name); n > 0 {
				out[name] = float64(n)
			}
		}
	}
	return out
}

// told are statistics with their values, the largest first, the first few of them.
func told(values map[string]float64) []string {
	const few = 5
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(values[b], values[a]), strings.Compare(a, b))
	})
	var out []string
	for i, n := range names {
		if i == few {
			return append(out, fmt.Sprintf("and %d more", len(names)-few))
		}
		out = append(out, fmt.Sprintf("%s %.0f", n, values[n]))
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (p *proxy) connected() verdict {
	const gauge = "control_plane.connected_state"
	state, ok := p.Now[gauge]
	if !ok {
		return nothing
	}
	if state == 1 {
		return well()
	}
	return well(Finding{
		Severity: Ill, What: "Envoy has no control plane, and stays on what it has: endpoints that go are not taken away",
		Evidence: []string{gauge + " 0"}, Cure: []string{"its log says why: is the control plane's address right, does it run, is the certificate valid?"},
	})
}

var updateRejected = regexp.MustCompile(`^(listener_manager\.lds|cluster_manager\.cds|.*\.rds\..*|cluster\..*|sds\..*|.*\.scoped_rds\..*|extension_config_discovery\..*)\.update_rejected$`)

func (p *proxy) refusedUpdates() verdict {
	if list := p.matching(updateRejected); len(list) > 0 {
		return well(Finding{
			Severity: Ill, What: "Envoy refused configuration, and stays on what it had", Evidence: append(told(list), p.subject.Seen),
			Cure: []string{"Envoy's log has the reason at level warning; moonsail proxies, or istioctl proxy-status, has it too"},
		})
	}
	return well()
}

// triedOften is how many connections an endpoint may refuse before it is told.
const triedOften = 3

// deadEndpoints: an endpoint to which no connection was ever made, though several were tried, is gone, or is not
// what its object says. It is the illness that control planes do not see.
func (p *proxy) deadEndpoints() verdict {
	if len(p.Hosts) == 0 {
		return nothing
	}
	dead := map[string]float64{}
	for _, h := range p.Hosts {
		if h.ConnectFails >= triedOften && h.ConnectFails == h.Connects && h.Active == 0 {
			dead[h.Cluster+" "+h.Address] = float64(h.ConnectFails)
		}
	}
	if len(dead) == 0 {
		return well()
	}
	return well(Finding{
		Severity: Ill, What: "calls go to endpoints that refuse every connection", Evidence: told(dead),
		Cure: []string{
			"see whether these Pods are there (kubectl get endpointslices): where they are gone, the control plane is late or this Envoy is cut off from it",
			"until then: outlierDetection in a DestinationRule, and retries, keep calls away from them",
		},
	})
}

var workerConnections = regexp.MustCompile(`^listener\.(.+)\.worker_(\d+)\.downstream_cx_active$`)

// Connections of a listener are judged from some on: fewer are spread so by chance.
const (
	someConnections = 32
	unevenFrom      = 1.5 // the most of a worker, by the mean
)

func (p *proxy) workerBalance() verdict {
	if p.Concurrency == 1 {
		return nothing
	}
	listeners := map[string][]uint64{}
	for _, name := range sortedKeys(p.Now) {
		if m := workerConnections.FindStringSubmatch(name); m != nil {
			listeners[m[1]] = append(listeners[m[1]], p.Now[name])
		}
	}
	if len(listeners) == 0 {
		return well(Finding{
			Severity: Blind, What: "it cannot be seen how connections are spread over worker threads",
			Evidence: []string{"there is no listener.*.worker_*.downstream_cx_active"},
			Cure:     []string{`annotate the Pod: sidecar.istio.io/statsInclusionRegexps: "listener\\..*\\.worker_.*\\.downstream_cx_active"`},
		})
	}
	var evidence []string
	for _, name := range sortedKeys(listeners) {
		if text := uneven(listeners[name]); text != "" {
			evidence = append(evidence, "listener "+name+": "+text)
		}
	}
	if len(evidence) == 0 {
		return well()
	}
	return well(Finding{
		Severity: Ill, What: "connections are on few worker threads, which are busy while others are idle", Evidence: evidence,
		Cure: []string{
			"balance new connections over workers: connection_balance_config exact_balance on the inbound listener (Moonsail's default; in Istio an EnvoyFilter on the listener)",
			"clients that keep a few HTTP/2 connections load few workers whatever the balance: more connections, or more, smaller Pods",
		},
	})
}

func uneven(workers []uint64) string {
	var sum uint64
	for _, n := range workers {
		sum += n
	}
	mean := float64(sum) / float64(len(workers))
	if most := slices.Max(workers); sum >= someConnections && float64(most) >= unevenFrom*mean {
		return fmt.Sprintf("%d of %d connections on one of %d workers, %.1f times the mean", most, sum, len(workers), float64(most)/mean)
	}
	return ""
}
