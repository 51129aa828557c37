package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// act performs the action of the route, after the filters have let the request pass.
func (w *World) act(x *exchange) error {
	switch a := x.route.GetAction().(type) {
	case *routev3.Route_DirectResponse:
		x.res.Status = int(a.DirectResponse.GetStatus())
		x.res.Body = body(a.DirectResponse.GetBody())
		x.answerHeaders()
		if x.res.Status == 201 || x.res.Status/100 == 3 {
			// Envoy names the request's own URL, as RFC 9110 requires of such answers.
			x.res.Location = x.scheme + "://" + x.headers[":authority"] + x.headers[":path"]
		}
		return nil
	case *routev3.Route_Redirect:
		x.answerHeaders()
		return x.redirect(a.Redirect)
	case *routev3.Route_Route:
		return w.route(x, a.Route)
	default:
		return fmt.Errorf("route action %T is unknown to the simulator", a)
	}
}

func body(d *corev3.DataSource) string {
	if s := d.GetInlineString(); s != "" {
		return s
	}
	return string(d.GetInlineBytes())
}

// answerHeaders are the response headers of an answer that the proxy itself gives.
func (x *exchange) answerHeaders() {
	u := Upstream{}
	x.changeHeaders(&u, nil)
	x.res.ResponseHeaders = u.response
}

// route forwards the request: the settings of the route first, then those of each cluster.
func (w *World) route(x *exchange, a *routev3.RouteAction) error {
	var err error
	res := x.res
	if res.Path, err = x.rewrite(a); err != nil {
		return err
	}
	res.Timeout = timeout(a)
	res.Retry = retry(a.GetRetryPolicy(), x.vh.GetRetryPolicy())
	for _, m := range a.GetRequestMirrorPolicies() {
		p := 100.0
		if m.GetRuntimeFraction() != nil {
			p = round(fraction(m.GetRuntimeFraction()))
		}
		res.Mirrors = append(res.Mirrors, Mirror{Cluster: m.GetCluster(), Percent: p})
	}
	for _, h := range a.GetHashPolicy() {
		res.Hash = append(res.Hash, hashed(h))
	}
	shares, err := x.shares(a)
	if err != nil {
		return err
	}
	if err := w.forward(shares, x.request, res); err != nil {
		return err
	}
	x.finish(a, shares)
	return nil
}

// finish describes the requests to each cluster, and the answer if no cluster can take any.
func (x *exchange) finish(a *routev3.RouteAction, shares []share) {
	for i := range x.res.Upstreams {
		u := &x.res.Upstreams[i]
		x.setAuthority(a, shares[i].weighted, u)
		x.changeHeaders(u, shares[i].weighted)
	}
	x.res.agree()
	if !x.res.reachesAny() {
		x.res.Status, x.res.Reason = x.unreached(a)
	}
}

// unreached is the answer if no endpoint can be reached. A route may configure the answer for a missing
// cluster.
func (x *exchange) unreached(a *routev3.RouteAction) (status int, reason string) {
	known := func(u Upstream) bool { return !u.Unknown() }
	if a.GetClusterNotFoundResponseCode() != routev3.RouteAction_INTERNAL_SERVER_ERROR || slices.ContainsFunc(x.res.Upstreams, known) {
		return 503, NoHealthyUpstream
	}
	return 500, unknownCluster
}

// NoHealthyUpstream is Envoy's reason for an answer without an endpoint.
const NoHealthyUpstream = "no healthy upstream"

// shares returns the clusters of a route with their weights.
func (x *exchange) shares(a *routev3.RouteAction) ([]share, error) {
	switch s := a.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		return []share{{name: s.Cluster, weight: 1}}, nil
	case *routev3.RouteAction_ClusterHeader:
		return []share{{name: x.headers[strings.ToLower(s.ClusterHeader)], weight: 1}}, nil
	case *routev3.RouteAction_WeightedClusters:
		var out []share
		for _, c := range s.WeightedClusters.GetClusters() {
			name := c.GetName()
			if name == "" {
				name = x.headers[strings.ToLower(c.GetClusterHeader())]
			}
			out = append(out, share{name: name, weight: c.GetWeight().GetValue(), weighted: c})
		}
		return out, nil
	default:
		return nil, fmt.Errorf("cluster specifier %T is unknown to the simulator", s)
	}
}

// timeout returns the timeout of a route. Envoy's default is 15 s, and 0 means none. With a max_stream_duration, also one
// that limits only gRPC, Envoy ignores the timeout.
func timeout(a *routev3.RouteAction) string {
	d := a.GetTimeout()
	if m := a.GetMaxStreamDuration(); m != nil {
		d = cmp.Or(m.GetMaxStreamDuration(), &durationpb.Duration{})
	}
	switch {
	case d == nil:
		return "15s"
	case d.AsDuration() == 0:
		return "none"
	}
	return d.AsDuration().String()
}

func retry(route, host *routev3.RetryPolicy) *Retry {
	p := route
	if p == nil {
		p = host
	}
	if p == nil || p.GetRetryOn() == "" {
		return nil
	}
	r := &Retry{Attempts: 1, On: p.GetRetryOn(), Codes: p.GetRetriableStatusCodes()}
	if n := p.GetNumRetries(); n != nil {
		r.Attempts = n.GetValue()
	}
	if r.Attempts == 0 {
		return nil
	}
	if d := p.GetPerTryTimeout().AsDuration(); d > 0 {
		r.PerTry = d.String()
	}
	if d := p.GetRetryBackOff().GetBaseInterval().AsDuration(); d > 0 {
		r.Backoff = d.String()
	}
	for _, h := range p.GetRetryHostPredicate() {
		r.PreviousHosts = r.PreviousHosts || h.GetName() == "envoy.retry_host_predicates.previous_hosts"
	}
	r.OtherLocalities = p.GetRetryPriority() != nil
	return r
}

func hashed(h *routev3.RouteAction_HashPolicy) string {
	switch p := h.GetPolicySpecifier().(type) {
	case *routev3.RouteAction_HashPolicy_Header_:
		return "header " + p.Header.GetHeaderName()
	case *routev3.RouteAction_HashPolicy_QueryParameter_:
		return "query " + p.QueryParameter.GetName()
	case *routev3.RouteAction_HashPolicy_ConnectionProperties_:
		return "sourceIP"
	case *routev3.RouteAction_HashPolicy_Cookie_:
		s := "cookie " + p.Cookie.GetName() + p.Cookie.GetPath()
		if ttl := p.Cookie.GetTtl(); ttl != nil {
			s += " for " + ttl.AsDuration().Round(time.Millisecond).String()
		}
		return s
	default:
		return fmt.Sprintf("%T", p)
	}
}

// perFilter returns the configuration of an HTTP filter for this request: the most specific one, from the
// weighted cluster up.
func (x *exchange) perFilter(name string) *anypb.Any {
	for _, level := range []map[string]*anypb.Any{
		x.route.GetTypedPerFilterConfig(), x.vh.GetTypedPerFilterConfig(), x.rc.GetTypedPerFilterConfig(),
	} {
		if a := level[name]; a != nil {
			return a
		}
	}
	return nil
}
