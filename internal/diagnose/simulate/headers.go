package simulate

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// headerOps are the changes of one level of the configuration.
type headerOps interface {
	GetRequestHeadersToAdd() []*corev3.HeaderValueOption
	GetRequestHeadersToRemove() []string
	GetResponseHeadersToAdd() []*corev3.HeaderValueOption
	GetResponseHeadersToRemove() []string
}

// changeHeaders computes the headers that upstream u gets, and those that its answers gain or lose. Levels
// go from the most specific one outwards. The outer ones win, unless most_specific_header_mutations_wins is
// set.
func (x *exchange) changeHeaders(u *Upstream, c *routev3.WeightedCluster_ClusterWeight) {
	levels := []headerOps{x.route, x.vh, x.rc}
	if c != nil {
		levels = append([]headerOps{c}, levels...)
	}
	if x.rc.GetMostSpecificHeaderMutationsWins() {
		slices.Reverse(levels)
	}
	u.request, u.response = map[string]string{}, map[string]string{}
	for k, v := range x.headers {
		if !strings.HasPrefix(k, ":") {
			u.request[k] = v
		}
	}
	pseudo := map[string]string{}
	for _, l := range levels {
		x.change(u.request, pseudo, l.GetRequestHeadersToAdd(), l.GetRequestHeadersToRemove())
		u.removed = append(u.removed, lower(l.GetResponseHeadersToRemove())...)
		x.change(u.response, nil, l.GetResponseHeadersToAdd(), l.GetResponseHeadersToRemove())
	}
	// A changed Host header is the authority.
	if host, ok := pseudo[":authority"]; ok {
		u.authority = host
	}
	x.forwardHost(u)
	slices.Sort(u.removed)
	if x.res.CORS != nil && x.res.CORS.Allowed {
		maps.Copy(u.response, x.corsHeaders())
	}
}

// forwardHost adds the host that the route replaces to x-forwarded-host, after all other headers. It does
// not add a host that is last in the header.
func (x *exchange) forwardHost(u *Upstream) {
	const name = "x-forwarded-host"
	host, told := x.headers[":authority"], strings.Split(u.request[name], ",")
	if u.forwardsHost && told[len(told)-1] != host {
		addOne(u.request, name, host, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	}
}

func lower(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToLower(s)
	}
	return out
}

// change removes, then adds. Pseudo headers and Host go to pseudo.
func (x *exchange) change(h, pseudo map[string]string, add []*corev3.HeaderValueOption, remove []string) {
	for _, name := range remove {
		delete(h, strings.ToLower(name))
	}
	for _, o := range add {
		name := strings.ToLower(o.GetHeader().GetKey())
		if name == "host" {
			name = ":authority"
		}
		to := h
		if strings.HasPrefix(name, ":") && pseudo != nil {
			to = pseudo
		}
		value := o.GetHeader().GetValue()
		if raw := o.GetHeader().GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		addOne(to, name, x.filled(value), action(o))
	}
}

var requestHeader = regexp.MustCompile(`%%|%(?:REQ|REQUEST_HEADER)\(([^?()]+)\)%`)

// filled replaces the operators for request headers in a value, and "%%". Other operators stay.
func (x *exchange) filled(value string) string {
	return requestHeader.ReplaceAllStringFunc(value, func(op string) string {
		if op == "%%" {
			return "%"
		}
		return x.headers[strings.ToLower(requestHeader.FindStringSubmatch(op)[1])]
	})
}

// action returns the append action of an option. The older `append` flag decides if it is set.
func action(o *corev3.HeaderValueOption) corev3.HeaderValueOption_HeaderAppendAction {
	if a := o.GetAppend(); a != nil {
		if a.GetValue() {
			return corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		}
		return corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	}
	return o.GetAppendAction()
}

func addOne(h map[string]string, name, value string, a corev3.HeaderValueOption_HeaderAppendAction) {
	old, exists := h[name]
	switch a {
	case corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
		if exists {
			value = old + "," + value
		}
	case corev3.HeaderValueOption_ADD_IF_ABSENT:
		if exists {
			return
		}
	case corev3.HeaderValueOption_OVERWRITE_IF_EXISTS:
		if !exists {
			return
		}
	}
	h[name] = value
}
