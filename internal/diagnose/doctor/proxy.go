package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"math"
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
	{"event-loops", "threads that are blocked", (*proxy).eventLoops},
	{"limits", "calls that circuit breakers reject", (*proxy).limits},
	{"unused-services", "configuration for services that are never called", (*proxy).unusedServices},
	{"filters", "filters that cost more than the proxy", (*proxy).filters},
	{"series", "too many statistics for a scrape", (*proxy).series},
}

func newProxy(e *ProxyEvidence) *proxy {
	s := Subject{Name: e.Address, Kind: Sidecar, Version: e.Version, Seen: "since it started"}
	if e.Before != nil {
		s.Seen = fmt.Sprintf("for %s", e.Over)
	}
	return &proxy{e, s}
}

// counted returns the increase of a counter while Envoy was watched, or since its start.
func (p *proxy) counted(name string) uint64 {
	if before := p.Before[name]; before <= p.Now[name] {
		return p.Now[name] - before
	}
	return p.Now[name]
}

// matching returns the statistics whose names match, with their increase, if it is above zero.
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

// formatted returns a few statistics with their values, the largest first.
func formatted(values map[string]float64) []string {
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

// has reports whether Envoy keeps a statistic with a matching name, apart from those of the connection to the control plane,
// which every sidecar keeps.
func (p *proxy) has(pattern *regexp.Regexp) bool {
	for name := range p.Now {
		if !strings.HasPrefix(name, "cluster.xds-grpc") && pattern.MatchString(name) {
			return true
		}
	}
	return false
}

// unseen is the finding that statistics of a check are missing. add is what keeps them, in the words of an annotation.
func unseen(what string, missing []string, annotation, add string) Finding {
	return Finding{
		Severity: Unknown, What: what, Evidence: []string{"statistics " + strings.Join(missing, ", ") + ": missing"},
		Advice: []string{fmt.Sprintf("add %q to the Pod's annotation sidecar.istio.io/%s", add, annotation)},
	}
}

func (p *proxy) connected() verdict {
	const gauge = "control_plane.connected_state"
	state, ok := p.Now[gauge]
	if !ok {
		return checked(unseen("unknown whether Envoy has a connection to its control plane", []string{gauge}, "statsInclusionPrefixes", "control_plane"))
	}
	if state == 1 {
		return checked()
	}
	return checked(Finding{
		Severity: Critical, What: "Envoy has no connection to its control plane: it keeps endpoints that are gone",
		Evidence: []string{gauge + " 0"}, Advice: []string{"see its log for the reason; check the control plane's address, its Pods, and the certificate"},
	})
}

var (
	updateRejected    = regexp.MustCompile(`^(listener_manager\.lds|cluster_manager\.cds|.*\.(rds|scoped_rds|vhds)\..*|cluster\..*|sds\..*|extension_config_discovery\..*)\.update_rejected$`)
	endpointsRejected = regexp.MustCompile(`^cluster\..*\.update_rejected$`)
	routesRejected    = regexp.MustCompile(`\.(rds|scoped_rds|vhds)\..*\.update_rejected$`)
	// Every Envoy has clusters, and HTTP requests to its admin interface. If it keeps these statistics, it keeps the ones above
	// too, unless it does not ask for endpoints or routes.
	clusterConnections = regexp.MustCompile(`^cluster\..*\.upstream_cx_total$`)
	httpRequests       = regexp.MustCompile(`^http\..*\.downstream_rq_total$`)
)

func (p *proxy) refusedUpdates() verdict {
	if list := p.matching(updateRejected); len(list) > 0 {
		return checked(Finding{
			Severity: Critical, What: "Envoy refused configuration, and keeps the previous one", Evidence: append(formatted(list), p.subject.Seen),
			Advice: []string{"see Envoy's log at level warning for the reason, or 'moonsail proxies', or 'istioctl proxy-status'"},
		})
	}
	var missing []string
	if !p.has(endpointsRejected) && !p.has(clusterConnections) {
		missing = append(missing, "cluster.*.update_rejected")
	}
	if !p.has(routesRejected) && !p.has(httpRequests) {
		missing = append(missing, "http.*.rds.*.update_rejected", "http.*.vhds.*.update_rejected")
	}
	if len(missing) > 0 {
		return checked(unseen("unknown whether Envoy refused endpoints, routes, secrets or extensions", missing, "statsInclusionSuffixes", "update_rejected"))
	}
	return checked()
}

// triedOften is the number of refused connections above which an endpoint counts as dead.
const triedOften = 3

// deadEndpoints finds endpoints that never accepted a connection, though Envoy tried several. They are
// gone, or are not what their object says. Control planes do not see this problem.
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
		return checked()
	}
	return checked(Finding{
		Severity: Critical, What: "calls go to endpoints that refuse every connection", Evidence: formatted(dead),
		Advice: []string{
			"check that these Pods exist (kubectl get endpointslices): if they are gone, the control plane is late or this Envoy is cut off from it",
			"until then, outlierDetection in a DestinationRule and retries keep calls away from them",
		},
	})
}

var workerConnections = regexp.MustCompile(`^listener\.(.+)\.worker_(\d+)\.downstream_cx_active$`)

// A listener needs someConnections, so that their distribution can be judged: few are uneven by chance. A distribution
// is uneven if a worker has unevenFrom times the mean, and unlikelyFrom standard deviations more than the mean. The
// standard deviation of a random distribution is the square root of the mean.
const (
	someConnections = 32
	unevenFrom      = 1.5
	unlikelyFrom    = 5
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
		return checked(Finding{
			Severity: Unknown, What: "unknown how connections are distributed over worker threads",
			Evidence: []string{"statistics listener.*.worker_*.downstream_cx_active: missing"},
			Advice:   []string{`annotate the Pod: sidecar.istio.io/statsInclusionRegexps: "listener\\..*\\.worker_.*\\.downstream_cx_active"`},
		})
	}
	var evidence []string
	for _, name := range sortedKeys(listeners) {
		if text := uneven(listeners[name]); text != "" {
			evidence = append(evidence, "listener "+name+": "+text)
		}
	}
	if len(evidence) == 0 {
		return checked()
	}
	return checked(Finding{
		Severity: Critical, What: "few worker threads have most connections, while others are idle", Evidence: evidence,
		Advice: []string{
			"balance new connections over workers: connection_balance_config exact_balance on the inbound listener (Moonsail's default; in Istio an EnvoyFilter on the listener)",
			"clients with few HTTP/2 connections use few workers even when balanced: use more connections, or more and smaller Pods",
		},
	})
}

func uneven(workers []uint64) string {
	var sum uint64
	for _, n := range workers {
		sum += n
	}
	mean := float64(sum) / float64(len(workers))
	from := max(unevenFrom*mean, mean+unlikelyFrom*math.Sqrt(mean))
	if most := slices.Max(workers); sum >= someConnections && float64(most) >= from {
		return fmt.Sprintf("%d of %d connections on one of %d workers, %.1f times the mean", most, sum, len(workers), float64(most)/mean)
	}
	return ""
}
