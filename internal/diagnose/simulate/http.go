package simulate

import (
	"errors"
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"

	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// exchange is one request on its way through an HTTP connection manager.
type exchange struct {
	*request
	rc    *routev3.RouteConfiguration
	vh    *routev3.VirtualHost
	route *routev3.Route
	// secures is set if the virtual host redirects requests in plain text to HTTPS.
	secures bool
	// reroute is set if a filter clears the route, so that it is selected again.
	reroute bool
	cors    string // name of the CORS filter that ran; empty: none
	res     *Result
	world   *World
}

func (w *World) runHTTP(f *hcmv3.HttpConnectionManager, r *request, res *Result) error {
	if err := w.decideHTTP(f, r, res); err != nil {
		return err
	}
	res.answerGRPC(r)
	return nil
}

func (w *World) decideHTTP(f *hcmv3.HttpConnectionManager, r *request, res *Result) error {
	if !r.isHTTP() {
		res.Closed = "not HTTP"
		return nil
	}
	r.hcm = f
	x := &exchange{request: r, res: res, world: w}
	if normalize(f, r, res); res.Status != 0 {
		return nil
	}
	if err := x.mutateEarly(); err != nil {
		return err
	}
	r.readClient()
	if err := w.findRoutes(x); err != nil {
		return err
	}
	res.RouteConfig = x.rc.GetName()
	stripAuthority(f, r)
	if err := x.pick(); err != nil {
		return err
	}
	answered, err := x.runFilters()
	switch {
	case err != nil || answered:
		return err
	case x.secures:
		res.Status, res.Reason = 301, "https is required"
		res.Location = "https://" + x.headers[":authority"] + x.headers[":path"]
		return nil
	case x.route == nil:
		res.Status, res.Reason = 404, "no route"
		return nil
	}
	return w.act(x)
}

func (w *World) findRoutes(x *exchange) (err error) {
	switch s := x.hcm.GetRouteSpecifier().(type) {
	case *hcmv3.HttpConnectionManager_Rds:
		x.rc, err = w.routeConfig(s.Rds.GetRouteConfigName())
	case *hcmv3.HttpConnectionManager_RouteConfig:
		x.rc = s.RouteConfig
	case *hcmv3.HttpConnectionManager_ScopedRoutes:
		x.rc, err = w.scopedRoutes(x)
	default:
		err = fmt.Errorf("route specifier %T is unknown to the simulator", s)
	}
	return err
}

// stripAuthority removes the port and the trailing dot of the authority, if the connection manager does so.
func stripAuthority(f *hcmv3.HttpConnectionManager, r *request) {
	host, port := splitPort(r.headers[":authority"])
	if f.GetStripTrailingHostDot() && strings.HasSuffix(host, ".") {
		host = strings.TrimSuffix(host, ".")
		r.headers[":authority"] = strings.TrimSuffix(host+":"+port, ":")
	}
	if port == "" {
		return
	}
	matching := f.GetStripMatchingHostPort() && port == fmt.Sprint(r.to.Port())
	if f.GetStripAnyHostPort() || matching {
		r.headers[":authority"] = host
	}
}

// splitPort cuts "host:port" and "[v6]:port". port is "" if there is none.
func splitPort(authority string) (host, port string) {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 || strings.HasSuffix(authority, "]") || strings.Count(authority, ":") > 1 && authority[0] != '[' {
		return authority, ""
	}
	return authority[:i], authority[i+1:]
}

// pick finds the virtual host and the route. The last filter decides about a request without a route.
func (x *exchange) pick() error {
	x.vh, x.route, x.secures = nil, nil, false
	x.res.VirtualHost, x.res.Route, x.res.RouteOrigin = "", "", ""
	authority := x.headers[":authority"]
	if x.rc.GetIgnorePortInHostMatching() {
		authority, _ = splitPort(authority)
	}
	x.vh = pickVirtualHost(x.rc.GetVirtualHosts(), strings.ToLower(authority))
	if x.vh == nil {
		return nil
	}
	x.res.VirtualHost = x.vh.GetName()
	if x.vh.GetRequireTls() == routev3.VirtualHost_ALL && x.scheme == "http" {
		x.secures = true
		return nil
	}
	if x.vh.GetMatcher() != nil {
		return errors.New("virtual host matcher is unknown to the simulator")
	}
	for i, r := range x.vh.GetRoutes() {
		ok, err := matches(r.GetMatch(), x.request)
		if err != nil {
			return fmt.Errorf("virtual host %s, route %d %q: %w", x.vh.GetName(), i, r.GetName(), err)
		}
		if ok {
			x.route, x.res.Route, x.res.RouteOrigin = r, r.GetName(), origin(r.GetMetadata())
			return nil
		}
	}
	return nil
}

// pickVirtualHost selects by domain: exact, then the longest "*suffix", then the longest "prefix*", then
// "*". A wildcard stands for at least one character.
func pickVirtualHost(all []*routev3.VirtualHost, host string) *routev3.VirtualHost {
	var found *routev3.VirtualHost
	top := 0
	for _, vh := range all {
		for _, d := range vh.GetDomains() {
			if n := rankDomain(strings.ToLower(d), host); n > top {
				top, found = n, vh
			}
		}
	}
	return found
}

const (
	rankAnyDomain = 1
	rankPrefix    = 1 << 16
	rankSuffix    = 1 << 17
	rankExact     = 1 << 18
)

// rankDomain returns how specifically a domain matches the host; 0: not at all.
func rankDomain(domain, host string) int {
	switch {
	case domain == "*":
		return rankAnyDomain
	case domain == host:
		return rankExact
	case len(host) < len(domain):
		return 0
	case strings.HasPrefix(domain, "*") && strings.HasSuffix(host, domain[1:]):
		return rankSuffix + len(domain)
	case strings.HasSuffix(domain, "*") && strings.HasPrefix(host, domain[:len(domain)-1]):
		return rankPrefix + len(domain)
	}
	return 0
}

// mutateEarly removes headers that are removed before everything else. The only header that is added is the
// key of a scope.
func (x *exchange) mutateEarly() error {
	for _, e := range x.hcm.GetEarlyHeaderMutationExtensions() {
		msg, err := unpack(e.GetTypedConfig())
		if err != nil {
			return err
		}
		early, ok := msg.(*earlyv3.HeaderMutation)
		if !ok {
			continue
		}
		for _, m := range early.GetMutations() {
			delete(x.headers, strings.ToLower(m.GetRemove()))
		}
	}
	return nil
}

// scopedRoutes finds the route configuration of the scope of a request's host. It knows only scopes whose
// key is a route shard and whose route configuration has the shard's name.
func (w *World) scopedRoutes(x *exchange) (*routev3.RouteConfiguration, error) {
	for _, e := range x.hcm.GetEarlyHeaderMutationExtensions() {
		msg, err := unpack(e.GetTypedConfig())
		if err != nil {
			return nil, err
		}
		early, ok := msg.(*earlyv3.HeaderMutation)
		if !ok {
			continue
		}
		for _, m := range early.GetMutations() {
			if key, ok := routeshard.Key(m.GetAppend().GetHeader().GetValue(), x.headers[":authority"]); ok {
				return w.routeConfig(key)
			}
		}
	}
	return nil, errors.New("scopes: unknown to the simulator, except those of route shards")
}
