package simulate

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// matches reports whether a route takes a request.
func matches(m *routev3.RouteMatch, r *request) (bool, error) {
	if m.GetTlsContext() != nil || len(m.GetFilterState()) > 0 {
		return false, errors.New("tls_context and filter_state are unknown to the simulator")
	}
	if m.GetGrpc() != nil && !strings.HasPrefix(r.headers["content-type"], "application/grpc") {
		return false, nil
	}
	if f := m.GetRuntimeFraction(); f != nil && !r.holds(fraction(f)) {
		return false, nil
	}
	ok, err := matchesPath(m, r)
	if !ok || err != nil {
		return false, err
	}
	for _, h := range m.GetHeaders() {
		if ok, err := matchesHeader(h, r.headers); !ok || err != nil {
			return false, err
		}
	}
	for _, d := range m.GetDynamicMetadata() {
		if ok, err := r.matchesMetadata(d); !ok || err != nil {
			return false, err
		}
	}
	return matchesQuery(m.GetQueryParameters(), r.headers[":path"])
}

// fraction returns a runtime fraction in percent. The simulator assumes that the runtime does not override
// it.
func fraction(f *corev3.RuntimeFractionalPercent) float64 { return fractional(f.GetDefaultValue()) }

func fractional(p *typev3.FractionalPercent) float64 {
	whole := map[typev3.FractionalPercent_DenominatorType]float64{
		typev3.FractionalPercent_HUNDRED: 100, typev3.FractionalPercent_TEN_THOUSAND: 1e4, typev3.FractionalPercent_MILLION: 1e6,
	}[p.GetDenominator()]
	return float64(p.GetNumerator()) / whole * 100
}

func matchesPath(m *routev3.RouteMatch, r *request) (bool, error) {
	path := r.path()
	fold := func(s string) string { return s }
	if cs := m.GetCaseSensitive(); cs != nil && !cs.GetValue() {
		fold = strings.ToLower
	}
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Path:
		return fold(path) == fold(p.Path), nil
	case *routev3.RouteMatch_Prefix:
		return strings.HasPrefix(fold(path), fold(p.Prefix)), nil
	case *routev3.RouteMatch_PathSeparatedPrefix:
		have, want := fold(path), fold(p.PathSeparatedPrefix)
		return have == want || strings.HasPrefix(have, want+"/"), nil
	case *routev3.RouteMatch_SafeRegex:
		return fullMatch(p.SafeRegex.GetRegex(), path)
	case *routev3.RouteMatch_ConnectMatcher_:
		return r.headers[":method"] == "CONNECT", nil
	default:
		return false, fmt.Errorf("path match %T is unknown to the simulator", p)
	}
}

// fullMatch is RE2 on the whole string, as Envoy's safe_regex: each byte is a character.
func fullMatch(expr, s string) (bool, error) {
	re, err := regexp.Compile(`^(?:` + latin1(expr) + `)$`)
	if err != nil {
		return false, err
	}
	return re.MatchString(latin1(s)), nil
}

// latin1 returns a text whose characters are the bytes of s.
func latin1(s string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteRune(rune(s[i]))
	}
	return out.String()
}

func matchesString(m *matcherv3.StringMatcher, s string) (bool, error) {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return fold(s) == fold(p.Exact), nil
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(fold(s), fold(p.Prefix)), nil
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(fold(s), fold(p.Suffix)), nil
	case *matcherv3.StringMatcher_Contains:
		return strings.Contains(fold(s), fold(p.Contains)), nil
	case *matcherv3.StringMatcher_SafeRegex: // ignore_case has no effect on it
		return fullMatch(p.SafeRegex.GetRegex(), s)
	default:
		return false, fmt.Errorf("string match %T is unknown to the simulator", p)
	}
}

// matchesHeader evaluates a header matcher. A missing header never matches a value, inverted or not, unless
// it is treated as empty. For missing headers only presence can be inverted.
func matchesHeader(m *routev3.HeaderMatcher, headers map[string]string) (bool, error) {
	value, present := headers[strings.ToLower(m.GetName())]
	if m.GetTreatMissingHeaderAsEmpty() {
		present = true
	}
	if p, ok := m.GetHeaderMatchSpecifier().(*routev3.HeaderMatcher_PresentMatch); ok {
		return (present == p.PresentMatch) != m.GetInvertMatch(), nil
	}
	if m.GetHeaderMatchSpecifier() == nil { // means presence
		return present != m.GetInvertMatch(), nil
	}
	if !present {
		return false, nil
	}
	ok, err := matchesValue(m, value)
	return ok != m.GetInvertMatch(), err
}

func matchesValue(m *routev3.HeaderMatcher, value string) (bool, error) {
	switch p := m.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_StringMatch:
		return matchesString(p.StringMatch, value)
	case *routev3.HeaderMatcher_ExactMatch:
		return value == p.ExactMatch, nil
	case *routev3.HeaderMatcher_PrefixMatch:
		return strings.HasPrefix(value, p.PrefixMatch), nil
	case *routev3.HeaderMatcher_SuffixMatch:
		return strings.HasSuffix(value, p.SuffixMatch), nil
	case *routev3.HeaderMatcher_ContainsMatch:
		return strings.Contains(value, p.ContainsMatch), nil
	case *routev3.HeaderMatcher_SafeRegexMatch:
		return fullMatch(p.SafeRegexMatch.GetRegex(), value)
	case *routev3.HeaderMatcher_RangeMatch:
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && n >= p.RangeMatch.GetStart() && n < p.RangeMatch.GetEnd(), nil
	default:
		return false, fmt.Errorf("header match %T is unknown to the simulator", p)
	}
}

// matchesQuery compares the first value of each parameter, without decoding it.
func matchesQuery(all []*routev3.QueryParameterMatcher, path string) (bool, error) {
	_, query, _ := strings.Cut(path, "?")
	params := map[string]string{}
	for pair := range strings.SplitSeq(query, "&") {
		k, v, _ := strings.Cut(pair, "=")
		if _, seen := params[k]; !seen && k != "" {
			params[k] = v
		}
	}
	for _, m := range all {
		value, present := params[m.GetName()]
		if !present {
			value, present = params[url.QueryEscape(m.GetName())]
		}
		ok, err := matchesParam(m, value, present)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func matchesParam(m *routev3.QueryParameterMatcher, value string, present bool) (bool, error) {
	switch p := m.GetQueryParameterMatchSpecifier().(type) {
	case nil:
		return present, nil
	case *routev3.QueryParameterMatcher_PresentMatch:
		return present == p.PresentMatch, nil
	case *routev3.QueryParameterMatcher_StringMatch:
		if !present {
			return false, nil
		}
		return matchesString(p.StringMatch, value)
	default:
		return false, fmt.Errorf("query parameter match %T is unknown to the simulator", p)
	}
}
