package agent

import (
	"regexp"
	"slices"
	"strings"

	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// prometheusStatPrefix names the Prometheus listener in statistics
// ("listener.stats.downstream_cx_active"), so that drains can leave it out of account.
const prometheusStatPrefix = "stats"

// What Envoy keeps statistics of, as in Istio, unless an annotation asks for more:
// readiness and the control plane's health need the prefixes, drains need
// downstream_cx_active (which also gives connections per worker and listener).
var (
	requiredPrefixes = []string{
		"cluster_manager", "listener_manager", "server", "cluster.xds-grpc", "wasm",
		"reporter=", "component", "istio",
	}
	requiredSuffixes = []string{
		"rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied", "downstream_cx_active",
	}
	requiredRegexps = []string{`vhost\..*\.route\..*`} // stat_prefix of routes
)

// Istio's annotations for more statistics. Each beats its counterpart in ProxyConfig's
// proxyStatsMatcher.
const (
	prefixesAnnotation = "sidecar.istio.io/statsInclusionPrefixes"
	suffixesAnnotation = "sidecar.istio.io/statsInclusionSuffixes"
	regexpsAnnotation  = "sidecar.istio.io/statsInclusionRegexps"
	tagsAnnotation     = "sidecar.istio.io/extraStatTags"
)

// statTags take the variable parts out of names. The forms are those of Istio's
// bootstrap: dashboards rely on the labels.
var statTags = [][2]string{
	{"cluster_name", `^cluster(\.(.+);)`},
	{"http_conn_manager_prefix", `^http\.(((?:[_.[:digit:]\w]*|[_\[\]aAbBcCdDeEfF[:digit:]\w\:]*));\.)`},
	{"thread_name", `^server(\.(.+))\.watchdog`},
	{"tcp_prefix", `^tcp\.((.*?)\.)\w+?$`},
	{"response_code", `_rq(_(\d{3}))$`},
	{"response_code_class", `_rq(_(\dxx))$`},
	{"http_conn_manager_listener_prefix", `^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
	{"listener_address", `^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
	{"mongo_prefix", `^mongo\.(.+?)\.(collection|cmd|cx_|op_|delays_|decoding_)(.*?)$`},
	{"cache", `(cache\.(.+?)\.)`},
	{"component", `(component\.(.+?)\.)`},
	{"tag", `(tag\.(.+?);\.)`},
	{"wasm_filter", `(wasm_filter\.(.+?)\.)`},
	{"authz_enforce_result", `rbac(\.(allowed|denied))`},
	{"authz_dry_run_action", `(\.istio_dry_run_(allow|deny)_)`},
	{"authz_dry_run_result", `(\.shadow_(allowed|denied))`},
}

func (s *settings) statsConfig() *metricsv3.StatsConfig {
	c := &metricsv3.StatsConfig{UseAllDefaultTags: wrapperspb.Bool(false)}
	for _, t := range statTags {
		c.StatsTags = append(c.StatsTags, tag(t[0], t[1]))
	}
	for _, name := range s.extraTags() {
		c.StatsTags = append(c.StatsTags, tag(name, `(`+regexp.QuoteMeta(name)+`=\.=(.*?);\.;)`))
	}
	c.StatsMatcher = &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_InclusionList{
		InclusionList: &matcherv3.ListStringMatcher{Patterns: s.inclusions()},
	}}
	c.HistogramBucketSettings = s.buckets
	return c
}

func tag(name, regex string) *metricsv3.TagSpecifier {
	return &metricsv3.TagSpecifier{TagName: name, TagValue: &metricsv3.TagSpecifier_Regex{Regex: regex}}
}

func (s *settings) extraTags() []string {
	seen := map[string]bool{}
	var tags []string
	for _, t := range slices.Concat(s.proxyConfig.GetExtraStatTags(), s.annotated(tagsAnnotation)) {
		if t != "" && !seen[t] {
			seen[t] = true
			tags = append(tags, t)
		}
	}
	return tags
}

func (s *settings) inclusions() []*matcherv3.StringMatcher {
	more := s.proxyConfig.GetProxyStatsMatcher()
	var patterns []*matcherv3.StringMatcher
	add := func(annotation string, configured, required []string, matcher func(string) *matcherv3.StringMatcher) {
		if a := s.annotated(annotation); len(a) > 0 {
			configured = a
		}
		for _, p := range append(s.perAddress(configured), required...) {
			patterns = append(patterns, matcher(p))
		}
	}
	add(prefixesAnnotation, more.GetInclusionPrefixes(), requiredPrefixes, prefixMatcher)
	add(suffixesAnnotation, more.GetInclusionSuffixes(), requiredSuffixes, suffixMatcher)
	add(regexpsAnnotation, more.GetInclusionRegexps(), requiredRegexps, regexMatcher)
	return patterns
}

// tellUncounted tells it where nothing is kept beyond what is required, none of which are such.
func (s *settings) tellUncounted() {
	if len(s.inclusions()) == len(requiredPrefixes)+len(requiredSuffixes)+len(requiredRegexps) {
		s.node.metadata[agentapi.MetaUncounted] = true
	}
}

// tellWorkers says that there is nothing to balance where there is one worker, unless somebody has
// said otherwise.
func (s *settings) tellWorkers() {
	if _, said := s.node.metadata[agentapi.MetaExactBalance]; !said && s.concurrency == 1 {
		s.node.metadata[agentapi.MetaExactBalance] = "false"
	}
}

func (s *settings) annotated(name string) []string {
	if v := s.Workload.Annotations[name]; v != "" {
		return strings.Split(v, ",")
	}
	return nil
}

// perAddress replaces {pod_ip} by each of the workload's addresses, as Istio does.
func (s *settings) perAddress(patterns []string) []string {
	var out []string
	for _, p := range patterns {
		if !strings.Contains(p, "{pod_ip}") {
			out = append(out, p)
			continue
		}
		for _, ip := range s.Workload.IPs {
			out = append(out, strings.ReplaceAll(p, "{pod_ip}", ip))
		}
	}
	return out
}

func prefixMatcher(v string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: v}}
}

func suffixMatcher(v string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: v}}
}

func regexMatcher(v string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
		SafeRegex: &matcherv3.RegexMatcher{Regex: v},
	}}
}
