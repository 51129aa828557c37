package preview

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Difference is a set of calls whose outcomes change in the same way.
type Difference struct {
	Host  string   `json:"host"`  // host:port
	Calls []string `json:"calls"` // URLs, with method and headers
	From  []string `json:"from"`  // NAME.NAMESPACE of the callers
	// Changes are in the order of a call: the answer, the server, the destination, the rest.
	Changes []Change `json:"changes"`
}

// Change is one property of calls on both sides. A side without the property has "none".
type Change struct {
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// outcome is what becomes of a call: texts by property, in the order of properties.
type outcome map[string]string

// properties are in the order in which users read them.
var properties = []string{
	"answer", "server", "destination", "encryption", "endpoints", "timeout", "retries", "fault", "mirror", "path", "host", "request headers",
	"response headers", "CORS", "protocol", "load balancing", "connection limits", "outlier detection", "connect timeout",
}

// try compares the outcomes of calls.
func (c *comparison) try(ctx context.Context, calls []Call) error {
	names := map[string][]string{}
	for _, cl := range c.callers {
		names[cl.proxy.String()] = cl.names
	}
	groups := map[string]*Difference{}
	for i := range calls {
		call := &calls[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		from := names[call.From]
		if from == nil {
			from = []string{call.From}
		}
		if c.report.Tried+len(from) > MaxCalls {
			c.report.Untried += len(from)
			continue
		}
		if c.before.caller(call.From) == nil && c.after.caller(call.From) == nil {
			return fmt.Errorf("no proxy has the name %q: use NAME.NAMESPACE of a workload with a sidecar", call.From)
		}
		before, err := c.before.outcome(call)
		if err != nil {
			return fmt.Errorf("before the change: %s from %s: %w", call.String(), call.From, err)
		}
		after, err := c.after.outcome(call)
		if err != nil {
			return fmt.Errorf("after the change: %s from %s: %w", call.String(), call.From, err)
		}
		c.report.Tried += len(from)
		if changes := before.changes(after); len(changes) > 0 {
			c.report.Differ += len(from)
			note(groups, call, from, changes)
		}
	}
	c.report.Differences = slices.SortedFunc(func(yield func(Difference) bool) {
		for _, d := range groups {
			slices.Sort(d.From)
			if !yield(*d) {
				return
			}
		}
	}, compareDifferences)
	return nil
}

// note adds a call to the difference with the same changes.
func note(groups map[string]*Difference, call *Call, from []string, changes []Change) {
	host := call.URL
	if _, rest, ok := strings.Cut(host, "://"); ok {
		host, _, _ = strings.Cut(rest, "/")
	}
	key := fmt.Sprint(host, changes)
	d := groups[key]
	if d == nil {
		d = &Difference{Host: host, Changes: changes}
		groups[key] = d
	}
	if text := call.String(); !slices.Contains(d.Calls, text) {
		d.Calls = append(d.Calls, text)
	}
	for _, f := range from {
		if !slices.Contains(d.From, f) {
			d.From = append(d.From, f)
		}
	}
}

// compareDifferences puts first what changes earliest in a call.
func compareDifferences(a, b Difference) int {
	rank := func(d Difference) int { return slices.Index(properties, d.Changes[0].What) }
	if r := rank(a) - rank(b); r != 0 {
		return r
	}
	return strings.Compare(a.Host+a.Calls[0]+a.From[0], b.Host+b.Calls[0]+b.From[0])
}

// changes compares outcomes. If a call is not forwarded on one side, the rest has no counterpart there and is left out.
func (o outcome) changes(after outcome) []Change {
	var out []Change
	for _, p := range properties {
		if o[p] != after[p] {
			out = append(out, Change{p, orNone(o[p]), orNone(after[p])})
		}
		if p == "answer" && len(out) > 0 && (o[p] != forwarded || after[p] != forwarded) {
			break
		}
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// outcome follows a call on one side.
func (o *opened) outcome(call *Call) (outcome, error) {
	p := o.caller(call.From)
	if p == nil {
		return outcome{"answer": "there is no such proxy"}, nil
	}
	w, err := o.world(p)
	if err != nil {
		return nil, err
	}
	sim, err := o.simulated(call, p)
	if err != nil {
		return nil, err
	}
	r, err := w.Call(sim)
	if err != nil {
		return nil, err
	}
	out := outcome{}
	out.describe(&sim, r)
	out.upstreams(r, sim.Host, o.nameAt)
	servers, err := o.servers(&sim, r, p)
	if err != nil {
		return nil, err
	}
	out.set("server", strings.Join(servers, "; "))
	return out, nil
}

// caller returns the proxy with a name, or the first one of the Deployment with that name.
func (o *opened) caller(name string) *model.Proxy {
	if p := o.byName[name]; p != nil {
		return p
	}
	name, ns, _ := strings.Cut(name, ".")
	for _, p := range o.proxies {
		if p.Namespace == ns && strings.HasPrefix(p.Name, name+"-") {
			return p
		}
	}
	return nil
}

// servers returns what the sidecars of the endpoints do with a call, each text once.
func (o *opened) servers(call *simulate.Call, r *simulate.Result, from *model.Proxy) ([]string, error) {
	var out []string
	seen := map[*world]bool{}
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		for j := range u.Endpoints {
			e := &u.Endpoints[j]
			ip, _, err := net.SplitHostPort(e.Address)
			if err != nil || e.Percent == 0 || u.Percent == 0 {
				continue
			}
			p := o.byIP[ip]
			if p == nil || p.Type == model.ProxyRouter {
				continue
			}
			w, err := o.world(p)
			if err != nil {
				return nil, err
			}
			if seen[w] {
				continue
			}
			seen[w] = true
			arrival := call.Arrival(r, u, e, caller.Principal(o.mesh, from))
			arrival.From = net.JoinHostPort(caller.FirstIP(from), "40000")
			in, err := w.Call(arrival)
			if err != nil {
				return nil, fmt.Errorf("at %s: %w", p, err)
			}
			if text := answer(in); !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// answer is what a proxy does with a call: forwards it, answers itself, or closes the connection.
func answer(r *simulate.Result) string {
	text := "accepts"
	switch {
	case r.Closed != "":
		text = "closes the connection: " + r.Closed
	case r.Status != 0:
		text = fmt.Sprintf("answers %d", r.Status)
		if r.Location != "" {
			text += " to " + r.Location
		}
	case r.Listener == "":
		text = "does not listen there"
	}
	for _, d := range r.Decisions {
		if d.Refuses {
			text += ", " + decision(&d)
		}
	}
	return text
}

func decision(d *simulate.Decision) string {
	switch {
	case d.Policy != "":
		return fmt.Sprintf("because of AuthorizationPolicy/%s, rule %d", d.Policy, d.Rule)
	case len(d.Among) > 0:
		return "because no rule of " + strings.Join(d.Among, ", ") + " allows it"
	case d.Cause != "":
		return d.Cause
	}
	return "because of a policy with action " + d.Action
}

func (o outcome) set(property, text string) {
	if text != "" {
		o[property] = text
	}
}

// forwarded is the answer of a proxy that passes a call on.
const forwarded = "forwarded"

// describe adds what the caller's proxy does with a call.
func (o outcome) describe(call *simulate.Call, r *simulate.Result) {
	text := answer(r)
	if text == "accepts" {
		text = forwarded
	}
	if f := r.Fault; f != nil && r.Status != 0 {
		text += ": a fault of " + fault(f)
	}
	o.set("answer", text)
	if r.Timeout != "none" {
		o.set("timeout", r.Timeout)
	}
	if r.Retry != nil {
		o.set("retries", strings.TrimSpace(fmt.Sprintf("%d on %s %s", r.Retry.Attempts, r.Retry.On, prefixed("each at most ", r.Retry.PerTry))))
	}
	o.set("fault", fault(r.Fault))
	var mirrors []string
	for _, m := range r.Mirrors {
		mirrors = append(mirrors, fmt.Sprintf("%g%% to %s", m.Percent, clusterText(m.Cluster, "")))
	}
	o.set("mirror", strings.Join(mirrors, ", "))
	if r.Path != call.Path {
		o.set("path", r.Path)
	}
	if r.Authority != call.Host {
		o.set("host", r.Authority)
	}
	o.set("request headers", headers(added(r.RequestHeaders, call.Headers), nil))
	o.set("response headers", headers(r.ResponseHeaders, r.ResponseRemoved))
	if r.CORS != nil {
		o.set("CORS", fmt.Sprintf("allowed: %t", r.CORS.Allowed))
	}
}

// nameAt returns the name of the workload at an endpoint's address, or else the address.
func (o *opened) nameAt(address string) string {
	if ip, _, err := net.SplitHostPort(address); err == nil && o.byIP[ip] != nil {
		return o.byIP[ip].String()
	}
	return address
}

// upstreams adds where a call to a host goes, and how. nameAt returns the name of an endpoint.
func (o outcome) upstreams(r *simulate.Result, host string, nameAt func(address string) string) {
	shares, endpoints := map[string]float64{}, map[string]float64{}
	each := map[string][]string{}
	add := func(property, text string) {
		if text != "" && !slices.Contains(each[property], text) {
			each[property] = append(each[property], text)
		}
	}
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		reached := false
		for _, e := range u.Endpoints {
			if e.Percent > 0 {
				reached = true
				endpoints[nameAt(e.Address)] += e.Percent * u.Percent / 100
			}
			add("encryption", encryption(u, &e))
		}
		name := clusterText(u.Cluster, host)
		if !reached {
			name += " (no endpoints)"
		}
		shares[name] += u.Percent
		add("protocol", u.Protocol)
		add("load balancing", u.LB)
		add("connect timeout", u.Connect)
		if u.Limits != nil {
			add("connection limits", strings.Trim(fmt.Sprintf("%+v", *u.Limits), "{}"))
		}
		if u.Outlier != nil {
			add("outlier detection", outlier(u.Outlier))
		}
	}
	o.set("destination", shareText(shares))
	o.set("endpoints", shareText(endpoints))
	for property, texts := range each {
		slices.Sort(texts)
		o.set(property, strings.Join(texts, ", "))
	}
}

func encryption(u *simulate.Upstream, e *simulate.Endpoint) string {
	switch {
	case u.TLS == nil || e.Plain:
		return "plain text"
	case u.TLS.Cert != "":
		return "mutual TLS"
	}
	return "TLS"
}

// clusterText is "reviews.shop.svc.cluster.local:9080", or "v1 of" it for a subset. If that is the host of the call, a subset
// is its name alone.
func clusterText(name, host string) string {
	c, ok := resourcename.ParseCluster(name)
	if !ok {
		return name
	}
	text := fmt.Sprintf("%s:%d", c.Host, c.Port)
	switch {
	case c.Subset != "" && text == host:
		return c.Subset
	case c.Subset != "":
		return c.Subset + " of " + text
	}
	return text
}

// shareText is "a 90%, b 10%", or "a" if that gets all.
func shareText(shares map[string]float64) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		if share := fmt.Sprintf("%.4g%%", shares[name]); share != "100%" {
			name += " " + share
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

func fault(f *simulate.Fault) string {
	if f == nil {
		return ""
	}
	var out []string
	if f.Delay != "" {
		out = append(out, fmt.Sprintf("%g%% delayed by %s", f.DelayPercent, f.Delay))
	}
	if f.Abort != 0 {
		out = append(out, fmt.Sprintf("%g%% answered with %d", f.AbortPercent, f.Abort))
	}
	if f.AbortGRPC != nil {
		out = append(out, fmt.Sprintf("%g%% answered with gRPC status %d", f.AbortPercent, *f.AbortGRPC))
	}
	return strings.Join(out, ", ")
}

// added returns the headers that a call does not have by itself.
func added(all, own map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range all {
		if own[k] != v {
			out[k] = v
		}
	}
	return out
}

func headers(set map[string]string, removed []string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, k+": "+set[k])
	}
	for _, k := range removed {
		out = append(out, "without "+k)
	}
	return strings.Join(out, ", ")
}

func outlier(o *simulate.Outlier) string {
	var out []string
	if o.Consecutive5xx != nil {
		out = append(out, fmt.Sprintf("%d consecutive 5xx", *o.Consecutive5xx))
	}
	if o.ConsecutiveGateway != nil {
		out = append(out, fmt.Sprintf("%d consecutive gateway errors", *o.ConsecutiveGateway))
	}
	if o.MaxPercent != nil {
		out = append(out, fmt.Sprintf("at most %d%%", *o.MaxPercent))
	}
	out = append(out, prefixed("interval ", o.Interval), prefixed("ejection ", o.Ejection))
	return strings.Join(slices.DeleteFunc(out, func(s string) bool { return s == "" }), ", ")
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
