package preview

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/sample"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Call is a call that Compute tries on both sides.
type Call struct {
	From    string            `json:"from"` // NAME.NAMESPACE of the calling proxy
	URL     string            `json:"url"`  // the scheme is the protocol: http, http2, grpc, tcp, tls, https
	Method  string            `json:"method,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Principal is the name in the certificate of the client of a gateway, for https and tls; empty: it has none.
	Principal string `json:"principal,omitempty"`
	// Address is the IP address to which the host of URL resolves; empty: that of the service.
	Address string `json:"address,omitempty"`

	path string // of requests that are made up: the end of URL, as it is sent; empty: that of URL
}

// String returns the call without its caller. Headers with credentials are hidden: reports are published.
func (c *Call) String() string {
	return c.request().String()
}

// secretNames are parts of the names of headers with credentials.
var secretNames = []string{"auth", "cookie", "jwt", "key", "password", "secret", "session", "token"}

// shown returns a header's value, or what tells a credential from others.
func shown(header, value string) string {
	header = strings.ToLower(header)
	if !slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(header, part) }) || header == ":authority" {
		return value
	}
	kind, secret, ok := strings.Cut(value, " ")
	if !ok || header == "cookie" {
		kind, secret = "", value
	}
	sum := sha256.Sum256([]byte(secret))
	return strings.TrimSpace(fmt.Sprintf("%s (hidden, SHA-256 %x)", kind, sum[:4]))
}

// client is a group of proxies whose calls are decided alike on both sides: they have the same resources and identity.
type client struct {
	proxy *model.Proxy // after the change
	diff  *resourceDiff
	// renamed: the name in its certificate differs between the sides, so that every server may decide differently.
	renamed bool
	names   []string
}

// clients returns the callers: proxies that both sides have, and routers that one side has.
func (c *comparison) clients() []*client {
	type identity struct {
		before, after *world
		was, is       string // its principal on each side
		address       string // of listeners that the proxy binds
	}
	groups := map[identity]*client{}
	var out []*client
	add := func(p, was *model.Proxy, before, after *world) {
		id := identity{before: before, after: after, was: caller.Principal(c.before.mesh, was), is: caller.Principal(c.after.mesh, p)}
		if caller.Binds(p) {
			id.address = caller.FirstIP(p)
		}
		g := groups[id]
		if g == nil {
			g = &client{proxy: p, diff: c.diffs[p], renamed: id.was != id.is}
			groups[id] = g
			out = append(out, g)
		}
		g.names = append(g.names, p.String())
	}
	for _, p := range c.after.proxies {
		if was := c.before.byName[p.String()]; was != nil {
			add(p, was, c.before.known(was), c.after.known(p))
		} else if p.Type == model.ProxyRouter {
			c.diffs[p] = &resourceDiff{before: &world{}, after: c.after.known(p)}
			add(p, p, nil, c.after.known(p))
		}
	}
	for _, p := range c.before.proxies {
		if p.Type == model.ProxyRouter && c.after.byName[p.String()] == nil {
			c.diffs[p] = &resourceDiff{before: c.before.known(p), after: &world{}}
			add(p, p, c.before.known(p), nil)
		}
	}
	return out
}

// ownCalls returns calls to every host whose resources differ for the caller, or whose servers' own resources differ, and to
// all hosts from a caller with another name: one for each route, and for each operation that a changed AuthorizationPolicy
// names.
func (c *comparison) ownCalls() []Call {
	servers := c.changedServers()
	operations := c.changedOperations()
	if untried := c.untriedConditions(); len(untried) > 0 {
		c.report.Notes = append(c.report.Notes, "conditions of changed AuthorizationPolicies on "+strings.Join(untried, ", ")+" are not tried: give calls with --calls")
	}
	var out []Call
	for _, cl := range c.callers {
		if cl.diff == nil && !cl.renamed && len(servers) == 0 {
			continue
		}
		var calls []Call
		if cl.proxy.Type == model.ProxyRouter {
			calls = c.entering(cl, operations)
		} else {
			calls = c.leaving(cl, servers, operations)
		}
		for i := range calls {
			calls[i].From = cmp.Or(calls[i].From, cl.proxy.String())
		}
		out = append(out, calls...)
	}
	return append(out, c.plainCalls(servers, operations)...)
}

// changedServers returns the hosts that lead to proxies whose inbound listener differs.
func (c *comparison) changedServers() map[model.Host]bool {
	out := map[model.Host]bool{}
	for p, d := range c.diffs { // the order does not count
		if p.Type == model.ProxyRouter || len(d.names[resource.Listener]) == 0 {
			continue
		}
		for _, ip := range p.IPs {
			for _, h := range slices.Concat(c.before.hostsAt[ip], c.after.hostsAt[ip]) {
				out[h] = true
			}
		}
	}
	return out
}

// leaving returns calls of a workload.
func (c *comparison) leaving(cl *client, servers map[model.Host]bool, operations []sample.Request) []Call {
	t := c.touchedBy(cl.diff)
	var out []Call
	for _, at := range append(c.targets(cl.proxy, func(s *model.Service, p *model.ServicePort) bool {
		return cl.renamed || servers[s.Hostname] || t.touches(s, p)
	}), t.others()...) {
		before, after := c.worldsOf(cl)
		requests := append(c.routesTo(before, after, at, "http"), operations...)
		out = append(out, c.byCallers(cl, at.host, at.calls(requests))...)
	}
	if t.outside {
		calls := []Call{{URL: "http://example.com/", Address: caller.Elsewhere}, {URL: "tls://example.com:443", Address: caller.Elsewhere}}
		out = append(out, c.byCallers(cl, "", calls)...)
	}
	return out
}

// byCallers returns the calls of a host for each of the client's proxies that make them, or for one that stands for all if that is
// unknown. An empty host is one outside of the mesh.
func (c *comparison) byCallers(cl *client, host model.Host, calls []Call) []Call {
	if c.callsHost == nil {
		return calls
	}
	var out []Call
	for _, call := range calls {
		call.From = cl.proxy.String()
		reached := c.reached(&call)
		if host != "" {
			reached = append(reached, host)
		}
		for _, name := range cl.names {
			p := cmp.Or(c.after.byName[name], c.before.byName[name])
			if slices.ContainsFunc(reached, func(h model.Host) bool { return c.callsHost(p, h) }) {
				call.From = name
				out = append(out, call)
			}
		}
	}
	return out
}

// reached returns where a call goes on either side, as Input.CallsHost names it. Sides on which it fails are left out: try reports it.
func (c *comparison) reached(call *Call) []model.Host {
	var clusters []string
	answered := false // by the proxy, before the change
	for _, side := range []*opened{c.before, c.after} {
		p := side.caller(call.From)
		if p == nil {
			continue
		}
		w, _, r, err := side.follow(call, p)
		if err != nil {
			continue
		}
		for i := range r.Upstreams {
			clusters = append(clusters, r.Upstreams[i].Cluster)
		}
		if len(r.Upstreams) == 0 {
			clusters = append(clusters, w.clustersOf(r.VirtualHost)...)
			answered = answered || side == c.before
		}
	}
	var out []model.Host
	if answered {
		out = append(out, "")
	}
	for _, name := range clusters {
		if cluster, ok := resourcename.ParseCluster(name); ok {
			name = string(cluster.Host)
		}
		out = append(out, model.Host(name))
	}
	return out
}

// clustersOf returns the clusters of a virtual host's routes. A request that a filter answers, for example with a fault, is measured as
// one to its route's cluster.
func (w *world) clustersOf(virtualHost string) []string {
	var out []string
	for _, vh := range w.VirtualHosts {
		if vh.GetName() != virtualHost {
			continue
		}
		for _, r := range vh.GetRoutes() {
			out = append(out, clustersOf(r)...)
		}
	}
	return out
}

func (c *comparison) worldsOf(cl *client) (before, after *world) {
	if cl.diff != nil {
		return cl.diff.before, cl.diff.after
	}
	w := c.after.known(cl.proxy)
	return w, w
}

// requestCall returns a call with a request at the beginning of a URL.
func requestCall(at string, r sample.Request) Call {
	out := Call{URL: at + r.Path, Method: r.Method, Headers: r.Headers, path: r.Path}
	if r.Host != "" {
		out.Headers = maps.Clone(r.Headers)
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		out.Headers["host"] = r.Host
	}
	return out
}

// parse returns the URL of a call, and the path of its request.
func (c *Call) parse() (*url.URL, string, error) {
	u, err := url.Parse(strings.TrimSuffix(c.URL, c.path))
	if err != nil || u.Hostname() == "" {
		return nil, "", fmt.Errorf("call %q: not a URL: write http://HOST:PORT/PATH", c.URL)
	}
	return u, cmp.Or(c.path, u.RequestURI()), nil
}

// calls returns the calls of a target.
func (t target) calls(requests []sample.Request) []Call {
	var out []Call
	host := net.JoinHostPort(exact(t.host), strconv.Itoa(int(t.port)))
	add := func(scheme string, r sample.Request) {
		call := requestCall(scheme+"://"+host, r)
		call.Address = t.address
		out = append(out, call)
	}
	switch {
	case t.protocol == model.ProtocolGRPC:
		for _, r := range requests {
			add("grpc", r)
		}
	case t.protocol.IsHTTP(), t.protocol == model.ProtocolAuto:
		for _, r := range requests {
			add("http", r)
		}
		if t.protocol == model.ProtocolAuto {
			add("tcp", sample.Request{})
		}
	case t.protocol.IsTLS():
		add("tls", sample.Request{})
	default:
		add("tcp", sample.Request{})
	}
	return out
}

// domainsOf returns the domains of virtual hosts, without ports.
func domainsOf(worlds ...*world) []string {
	var out []string
	for _, w := range worlds {
		for _, vh := range w.VirtualHosts {
			for _, d := range vh.GetDomains() {
				if host, _, err := net.SplitHostPort(d); err == nil {
					d = host
				}
				out = append(out, d)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// routesTo returns a request for each route of a host on either side, and one for "/". Routes for which no request with one of the
// schemes can be made up are kept for Report.Untried.
func (c *comparison) routesTo(before, after *world, t target, schemes ...string) []sample.Request {
	out := []sample.Request{{Path: "/"}}
	for _, w := range []*world{after, before} {
		for _, vh := range w.VirtualHosts {
			if !slices.ContainsFunc(vh.GetDomains(), t.named) {
				continue
			}
			for _, r := range vh.GetRoutes() {
				made, ok := sample.RequestFor(r.GetMatch())
				switch {
				case !ok, made.Scheme != "" && !slices.Contains(schemes, made.Scheme):
					c.unmade[vh.GetName()+" "+encoded(r.GetMatch())] = string(t.host)
				case !slices.ContainsFunc(out, made.Equal):
					out = append(out, made)
				}
			}
		}
	}
	return out
}

// named reports whether a domain of a virtual host is the target's.
func (t target) named(domain string) bool {
	host, port, err := net.SplitHostPort(domain)
	if err != nil {
		host, port = domain, ""
	}
	return model.Host(host) == t.host && (port == "" || port == "*" || t.port == 0 || port == strconv.Itoa(int(t.port)))
}

// simulated returns a call as the simulator takes it, from one side's proxy.
func (o *opened) simulated(call *Call, p *model.Proxy, w *world) (simulate.Call, error) {
	u, path, err := call.parse()
	if err != nil {
		return simulate.Call{}, err
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "tls": "443"}[u.Scheme], "80")
	address := call.Address
	if address == "" {
		address, _, _ = o.names.Resolve(p, u.Hostname())
	}
	out := simulate.Call{
		To: net.JoinHostPort(address, port), From: net.JoinHostPort(caller.FirstIP(p), "40000"),
		Protocol: simulate.Protocol(u.Scheme), Host: u.Host, Path: path, Method: call.Method, Headers: call.Headers,
		AssumeSigned: true,
	}
	if out.Protocol == simulate.TLS || out.Protocol == simulate.HTTPS {
		out.SNI = u.Hostname()
	}
	out = out.WithAuthority()
	switch {
	case p.Type == model.ProxyRouter:
		out.Principal = call.Principal
		out.Direct, out.From, out.To = true, net.JoinHostPort(caller.Elsewhere, "40000"), net.JoinHostPort(caller.FirstIP(p), port)
	case p.Interception == model.InterceptNone:
		out.Direct = true
		out.To, _ = w.Entrance(out, port, p.IPs)
	}
	return out, nil
}
