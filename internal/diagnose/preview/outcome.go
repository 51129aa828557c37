package preview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/outcome"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Difference is a set of calls whose outcomes change in the same way.
type Difference struct {
	Host  string    `json:"host"` // host:port
	Calls []Request `json:"calls"`
	From  []string  `json:"from"`  // NAME.NAMESPACE of the callers. Each makes all of Calls
	Count int       `json:"count"` // of calls
	// Changes are in the order of a call: the answer, the server, the destination, the rest.
	Changes []Change `json:"changes"`
}

// Change is one property of calls on both sides. A side without the property has "none".
type Change struct {
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// try compares the outcomes of calls. whole: each stands for all callers whose calls are decided alike.
func (c *comparison) try(ctx context.Context, calls []Call, whole bool) error {
	names := map[string][]string{}
	if whole {
		for _, cl := range c.callers {
			names[cl.proxy.String()] = cl.names
		}
		if len(c.plain) > 0 {
			names[c.plain[0]] = c.plain
		}
	}
	found, undecided := differences{}, outcome.UndecidedCalls{}
	if len(calls) > c.most {
		calls = inTurn(calls)
	}
	for i := range calls {
		call := &calls[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		from := names[call.From]
		if from == nil {
			from = []string{call.From}
		}
		if i >= c.most {
			c.report.Untried += len(from)
			continue
		}
		differ, verdict, side, err := c.changes(call)
		if err != nil {
			undecided.Add(side, err, call.String(), call.From, len(from))
			continue
		}
		c.report.Tried += len(from)
		if len(differ) > 0 {
			c.report.Differ += len(from)
			found.add(call, from, differ)
		}
		switch verdict {
		case breaks:
			c.report.Broken += len(from)
		case repairs:
			c.report.Repaired += len(from)
		}
	}
	if len(c.unmade) > 0 {
		c.report.Untried += len(c.unmade)
		hosts := slices.Compact(slices.Sorted(maps.Values(c.unmade)))
		c.report.Notes = append(c.report.Notes, fmt.Sprintf(
			"no call could be made up for routes of %s (%d): give calls that they match with --calls", strings.Join(hosts, ", "), len(c.unmade)))
	}
	if c.report.Undecided = undecided.Sorted(); len(undecided) > 0 {
		c.report.Notes = append(c.report.Notes, "undecided calls may be decided differently: apply the change where you can test them first")
	}
	c.report.Differences = found.sorted()
	return nil
}

// Names of the sides, for people.
const (
	sideBefore = "before the change"
	sideAfter  = "after the change"
)

// verdict is what a change does to a call as a whole.
type verdict uint8

const (
	other   verdict = iota
	breaks          // it fails after the change only
	repairs         // it fails before the change only
)

// changes returns how the outcomes of a call differ. An error is that of a side which the simulator cannot decide.
func (c *comparison) changes(call *Call) (differ []Change, v verdict, side string, err error) {
	before, err := c.before.outcome(call)
	if err != nil {
		return nil, other, sideBefore, err
	}
	after, err := c.after.outcome(call)
	if err != nil {
		return nil, other, sideAfter, err
	}
	differ = changes(before, after)
	switch {
	case len(differ) == 0 || before.fails == after.fails:
	case after.fails:
		v = breaks
	default:
		v = repairs
	}
	return differ, v, "", nil
}

// checkGiven reports a call of Input.Calls that is wrong.
func (c *comparison) checkGiven(calls []Call) error {
	for i := range calls {
		call, side := &calls[i], c.after
		p, plain := side.callerOf(call.From)
		if p == nil {
			side = c.before
			p, plain = side.callerOf(call.From)
		}
		if p == nil {
			return fmt.Errorf("no workload has the name %q: use NAME.NAMESPACE of a Pod or Deployment, or of a gateway", call.From)
		}
		w := &world{}
		if !plain {
			w = side.known(p)
		}
		sim, err := side.simulated(call, p, w)
		if err == nil {
			err = sim.Check()
		}
		if err != nil {
			return fmt.Errorf("%s from %s: %w", call.String(), call.From, err)
		}
	}
	return nil
}

// changes compares outcomes. What follows from another destination, or from TLS instead of plain text, is left out.
func changes(before, after result) (out []Change) {
	follows := map[string]bool{}
	if before.Outcome["destination"] != after.Outcome["destination"] {
		follows["SNI"], follows["server identity"] = true, true
	}
	if before.Outcome["encryption"] != after.Outcome["encryption"] {
		for _, p := range []string{"SNI", "server identity", "certificate authority", "certificate"} {
			follows[p] = true
		}
	}
	differ := func(p, b, a string) {
		if !follows[p] {
			out = append(out, Change{p, b, a})
		}
	}
	before.Compare(after.Outcome, outcome.Properties, differ)
	if len(out) == 0 || out[0].What != "answer" {
		return out
	}
	out[0].Before, out[0].After = before.answer(), after.answer()
	if before.routed && after.routed { // the routes differ behind a failure, too
		before.Compare(after.Outcome, ofRoutes, differ)
	}
	return out
}

// ofRoutes are the properties that a route has, also if no endpoint can be reached.
var ofRoutes = []string{"timeout", "retries", "fault", "mirror", "path", "host", "request headers", "response headers", "CORS"}

// result is what becomes of a call on one side.
type result struct {
	outcome.Outcome
	routed bool   // a route sends it to clusters
	reason string // why none of the clusters can be reached; empty: one can, or the route has no clusters
	fails  bool   // a proxy refuses it, or no endpoint can be reached
}

// answer is the answer, with its reason.
func (r *result) answer() string {
	text := cmp.Or(r.Outcome["answer"], outcome.None)
	if r.reason != "" {
		text += ": " + r.reason
	}
	return text
}

// failed reports whether a proxy refuses a call.
func failed(r *simulate.Result) bool { return r.Closed != "" || r.Status >= http.StatusBadRequest }

// outcome follows a call on one side, and describes it.
func (o *opened) outcome(call *Call) (out result, err error) {
	p, plain := o.callerOf(call.From)
	switch {
	case p == nil:
		return result{Outcome: outcome.Outcome{"answer": "the proxy does not exist"}, fails: true}, nil
	case plain:
		return o.plainOutcome(call, p)
	}
	_, sim, r, err := o.follow(call, p)
	if err != nil {
		return out, err
	}
	o.assume(r)
	out = result{Outcome: outcome.Outcome{}, routed: len(r.Upstreams) > 0, reason: o.unreached(r), fails: failed(r)}
	out.Describe(&sim, r)
	out.Upstreams(r, sim.Host, o.nameAt)
	servers, refused, err := o.servers(&sim, r, p, 0)
	if err != nil {
		return out, err
	}
	out.Set("server", strings.Join(servers, "; "))
	out.fails = out.fails || refused
	return out, nil
}

// assume keeps the issuers of tokens that count as signed.
func (o *opened) assume(r *simulate.Result) {
	for _, issuer := range r.AssumedSigned {
		o.assumed[issuer] = true
	}
}

// follow follows a call through the caller's proxy p, which has w.
func (o *opened) follow(call *Call, p *model.Proxy) (w *world, sim simulate.Call, r *simulate.Result, err error) {
	if w, err = o.world(p); err != nil {
		return nil, sim, nil, err
	}
	if sim, err = o.simulated(call, p, w); err != nil {
		return nil, sim, nil, err
	}
	r, err = w.Call(sim)
	return w, sim, r, err
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

// maxRouters bounds the routers behind one another that a call is followed through.
const maxRouters = 3

// servers returns what the proxies of the endpoints do with a call, each text once, and whether one of them refuses it. A router at
// an endpoint, for example an egress gateway, passes the call on.
func (o *opened) servers(call *simulate.Call, r *simulate.Result, from *model.Proxy, routers int) (out []string, refused bool, err error) {
	seen := map[*world]bool{}
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		for j := range u.Endpoints {
			e := &u.Endpoints[j]
			p := o.proxyAt(e.Address)
			if p == nil || e.Percent == 0 || u.Percent == 0 || p.Type == model.ProxyRouter && routers == maxRouters {
				continue
			}
			w, err := o.world(p)
			if err != nil {
				return nil, false, err
			}
			if seen[w] {
				continue
			}
			seen[w] = true
			text, refuses, err := o.server(caller.Arrival(o.mesh, call, r, u, e, from, p), p, w, routers)
			if err != nil {
				return nil, false, fmt.Errorf("at %s: %w", p, err)
			}
			out, refused = append(out, text), refused || refuses
		}
	}
	slices.Sort(out)
	return slices.Compact(out), refused, nil
}

// server returns what the proxy of an endpoint, which has w, does with a call that arrives there, and whether it refuses the call.
func (o *opened) server(arrival simulate.Call, p *model.Proxy, w *world, routers int) (text string, refuses bool, err error) {
	in, err := w.Call(arrival)
	if err != nil {
		return "", false, err
	}
	o.assume(in)
	switch {
	case p.Type != model.ProxyRouter && arrival.Direct && in.Listener == "":
		return "the application itself", false, nil
	case p.Type != model.ProxyRouter:
		return outcome.Answer(in), failed(in), nil
	case in.Status != 0 || in.Closed != "":
		text = p.String() + " " + outcome.Answer(in)
		if reason := o.unreached(in); reason != "" {
			text += ": " + reason
		}
		return text, failed(in), nil
	}
	onward := outcome.Outcome{}
	onward.Upstreams(in, "", o.nameAt)
	text = p.String() + " forwards to " + onward["destination"]
	behind, refuses, err := o.servers(&arrival, in, p, routers+1)
	if len(behind) > 0 {
		text += " (" + strings.Join(behind, "; ") + ")"
	}
	return text, refuses, err
}

// unreached is why none of a route's clusters has an endpoint; empty: one has, or a filter answers before.
func (o *opened) unreached(r *simulate.Result) string {
	if len(r.Upstreams) == 0 || !r.Unreached() {
		return ""
	}
	var out []string
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		if u.Percent == 0 && len(r.Upstreams) > 1 {
			continue
		}
		if text := o.lacking(u.Cluster, u.Unknown()); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// lacking is what a cluster without endpoints lacks. unknown: the proxy does not have the cluster.
func (o *opened) lacking(name string, unknown bool) string {
	c, ok := resourcename.ParseCluster(name)
	at := slices.IndexFunc(o.services, func(s *model.Service) bool { return s.Hostname == c.Host })
	switch {
	case !ok && unknown:
		return "cluster " + name + " does not exist"
	case !ok:
		return name + " has no endpoint that takes calls"
	case at < 0:
		return "no service has the host " + string(c.Host)
	case !slices.ContainsFunc(o.services[at].Ports, func(p model.ServicePort) bool { return p.Number == c.Port }):
		return fmt.Sprintf("service %s has no port %d", c.Host, c.Port)
	case unknown && c.Subset != "":
		return fmt.Sprintf("no DestinationRule has the subset %s of %s", c.Subset, c.Host)
	case unknown:
		return fmt.Sprintf("the caller's proxy does not have service %s", c.Host)
	case c.Subset != "":
		return fmt.Sprintf("subset %s of %s:%d has no endpoint that takes calls", c.Subset, c.Host, c.Port)
	}
	return fmt.Sprintf("%s:%d has no endpoint that takes calls", c.Host, c.Port)
}

// proxyAt returns the proxy at an endpoint's address; nil: none.
func (o *opened) proxyAt(address string) *model.Proxy {
	ip, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	return o.byIP[ip]
}

// nameAt returns the name of the workload at an endpoint's address, or else the address.
func (o *opened) nameAt(address string) string {
	if p := o.proxyAt(address); p != nil {
		return p.String()
	}
	return address
}
