package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// PrometheusStatPrefix names the Prometheus listener in statistics ("listener.stats.downstream_cx_active"). A drain does
// not count its connections.
const PrometheusStatPrefix = "stats"

// The statistics that Envoy keeps in any case, as in Istio. Readiness and the control plane's health need the prefixes.
// A drain needs downstream_cx_active, which also counts connections by worker and listener.
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

// Istio's annotations for more statistics. Each overrides its counterpart in ProxyConfig's proxyStatsMatcher.
const (
	prefixesAnnotation = "sidecar.istio.io/statsInclusionPrefixes"
	suffixesAnnotation = "sidecar.istio.io/statsInclusionSuffixes"
	regexpsAnnotation  = "sidecar.istio.io/statsInclusionRegexps"
	tagsAnnotation     = "sidecar.istio.io/extraStatTags"
)

// statTags turn the variable parts of names into tags. They are those of Istio's bootstrap, because dashboards use the
// labels.
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

func (o *Options) statsConfig() *metricsv3.StatsConfig {
	c := &metricsv3.StatsConfig{UseAllDefaultTags: wrapperspb.Bool(false)}
	for _, t := range statTags {
		c.StatsTags = append(c.StatsTags, tag(t[0], t[1]))
	}
	for _, name := range o.extraTags() {
		c.StatsTags = append(c.StatsTags, tag(name, `(`+regexp.QuoteMeta(name)+`=\.=(.*?);\.;)`))
	}
	c.StatsMatcher = &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_InclusionList{
		InclusionList: &matcherv3.ListStringMatcher{Patterns: o.inclusions()},
	}}
	c.HistogramBucketSettings = o.Buckets
	return c
}

func tag(name, regex string) *metricsv3.TagSpecifier {
	return &metricsv3.TagSpecifier{TagName: name, TagValue: &metricsv3.TagSpecifier_Regex{Regex: regex}}
}

func (o *Options) extraTags() []string {
	seen := map[string]bool{}
	var tags []string
	for _, t := range slices.Concat(o.ProxyConfig.GetExtraStatTags(), o.annotated(tagsAnnotation)) {
		if t != "" && !seen[t] {
			seen[t] = true
			tags = append(tags, t)
		}
	}
	return tags
}

func (o *Options) inclusions() []*matcherv3.StringMatcher {
	more := o.ProxyConfig.GetProxyStatsMatcher()
	var patterns []*matcherv3.StringMatcher
	add := func(annotation string, configured, required []string, matcher func(string) *matcherv3.StringMatcher) {
		if a := o.annotated(annotation); len(a) > 0 {
			configured = a
		}
		for _, p := range append(o.perAddress(configured), required...) {
			patterns = append(patterns, matcher(p))
		}
	}
	add(prefixesAnnotation, more.GetInclusionPrefixes(), requiredPrefixes, prefixMatcher)
	add(suffixesAnnotation, more.GetInclusionSuffixes(), requiredSuffixes, suffixMatcher)
	add(regexpsAnnotation, more.GetInclusionRegexps(), requiredRegexps, regexMatcher)
	return patterns
}

// OnlyRequiredStats reports whether Envoy keeps no statistics beyond the required ones. These include no counters by
// response code.
func (o *Options) OnlyRequiredStats() bool {
	return len(o.inclusions()) == len(requiredPrefixes)+len(requiredSuffixes)+len(requiredRegexps)
}

func (o *Options) annotated(name string) []string {
	if v := o.Annotations[name]; v != "" {
		return strings.Split(v, ",")
	}
	return nil
}

// perAddress repeats patterns with {pod_ip} for each address of the workload, as Istio does.
func (o *Options) perAddress(patterns []string) []string {
	var out []string
	for _, p := range patterns {
		if !strings.Contains(p, "{pod_ip}") {
			out = append(out, p)
			continue
		}
		for _, ip := range o.IPs {
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

// BucketsAnnotation holds a JSON object that maps prefixes of histograms' names to the upper bounds of their buckets.
const BucketsAnnotation = "sidecar.istio.io/statsHistogramBuckets"

// istioHistograms begins the names of Istio's histograms in Istio's sidecars, and callHistograms those in Moonsail's.
const (
	istioHistograms = "istiocustom.istio_"
	callHistograms  = "istio."
)

// HistogramBuckets decodes the value of BucketsAnnotation. Longer prefixes come first, because Envoy applies the first
// that matches. Prefixes of Istio's own names, such as "istiocustom", apply to the same metrics here.
func HistogramBuckets(text string) ([]*metricsv3.HistogramBucketSettings, error) {
	if text == "" {
		return nil, nil
	}
	var bounds map[string][]float64
	if err := json.Unmarshal([]byte(text), &bounds); err != nil {
		return nil, fmt.Errorf("not a JSON object of lists of numbers: %w", err)
	}
	var out []*metricsv3.HistogramBucketSettings
	for _, prefix := range slices.SortedFunc(maps.Keys(bounds), longerFirst) {
		if err := checkBuckets(bounds[prefix]); err != nil {
			return nil, fmt.Errorf("prefix %q: %w", prefix, err)
		}
		out = append(out, &metricsv3.HistogramBucketSettings{Match: prefixMatcher(ownPrefix(prefix)), Buckets: bounds[prefix]})
	}
	return out, nil
}

// ownPrefix is what begins the same names as prefix does in Istio.
func ownPrefix(prefix string) string {
	if rest, ok := strings.CutPrefix(prefix, istioHistograms); ok {
		return callHistograms + rest
	}
	if len(prefix) > len("istio") && strings.HasPrefix(istioHistograms, prefix) {
		return callHistograms
	}
	return prefix
}

func longerFirst(a, b string) int {
	if len(a) != len(b) {
		return len(b) - len(a)
	}
	if a < b {
		return -1
	}
	return 1
}

// checkBuckets checks what Envoy requires: bounds are positive and increase.
func checkBuckets(bounds []float64) error {
	if len(bounds) == 0 {
		return errors.New("no buckets: list at least one bound")
	}
	for i, b := range bounds {
		if b <= 0 || i > 0 && b <= bounds[i-1] {
			return fmt.Errorf("invalid bounds %v: use positive numbers in increasing order", bounds)
		}
	}
	return nil
}
