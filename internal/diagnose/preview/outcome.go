package preview

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/outcome"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
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
	groups, undecided := map[string]*Difference{}, outcome.UndecidedCalls{}
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
		differ, side, err := c.changes(call)
		if err != nil {
			undecided.Add(side, err, call.String(), call.From, len(from))
			continue
		}
		c.report.Tried += len(from)
		if len(differ) > 0 {
			c.report.Differ += len(from)
			note(groups, call, from, differ)
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
	for _, d := range groups {
		slices.Sort(d.From)
		c.report.Differences = append(c.report.Differences, *d)
	}
	slices.SortFunc(c.report.Differences, compareDifferences)
	return nil
}

// Names of the sides, for people.
const (
	sideBefore = "before the change"
	sideAfter  = "after the change"
)

// changes returns how the outcomes of a call differ. An error is that of a side which the simulator cannot decide.
func (c *comparison) changes(call *Call) (differ []Change, side string, err error) {
	before, err := c.before.outcome(call)
	if err != nil {
		return nil, sideBefore, err
	}
	after, err := c.after.outcome(call)
	if err != nil {
		return nil, sideAfter, err
	}
	return changes(before, after), "", nil
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
	rank := func(d Difference) int { return slices.Index(outcome.Properties, d.Changes[0].What) }
	if r := rank(a) - rank(b); r != 0 {
		return r
	}
	return strings.Compare(a.Host+a.Calls[0]+a.From[0], b.Host+b.Calls[0]+b.From[0])
}

// changes compares outcomes. What follows from another destination, or from TLS instead of plain text, is left out.
func changes(before, after outcome.Outcome) (out []Change) {
	follows := map[string]bool{}
	if before["destination"] != after["destination"] {
		follows["SNI"], follows["server identity"] = true, true
	}
	if before["encryption"] != after["encryption"] {
		for _, p := range []string{"SNI", "server identity", "certificate authority", "certificate"} {
			follows[p] = true
		}
	}
	before.Compare(after, outcome.Properties, func(p, b, a string) {
		if !follows[p] {
			out = append(out, Change{p, b, a})
		}
	})
	return out
}

// outcome follows a call on one side, and describes it.
func (o *opened) outcome(call *Call) (outcome.Outcome, error) {
	p, plain := o.callerOf(call.From)
	switch {
	case p == nil:
		return outcome.Outcome{"answer": "the proxy does not exist"}, nil
	case plain:
		return o.plainOutcome(call, p)
	}
	_, sim, r, err := o.follow(call, p)
	if err != nil {
		return nil, err
	}
	o.assume(r)
	out := outcome.Outcome{}
	out.Describe(&sim, r)
	out.Upstreams(r, sim.Host, o.nameAt)
	servers, err := o.servers(&sim, r, p, 0)
	if err != nil {
		return nil, err
	}
	out.Set("server", strings.Join(servers, "; "))
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

// servers returns what the proxies of the endpoints do with a call, each text once. A router at an endpoint, for example an egress
// gateway, passes the call on.
func (o *opened) servers(call *simulate.Call, r *simulate.Result, from *model.Proxy, routers int) ([]string, error) {
	var out []string
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
				return nil, err
			}
			if seen[w] {
				continue
			}
			seen[w] = true
			text, err := o.server(caller.Arrival(o.mesh, call, r, u, e, from, p), p, w, routers)
			if err != nil {
				return nil, fmt.Errorf("at %s: %w", p, err)
			}
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// server returns what the proxy of an endpoint, which has w, does with a call that arrives there.
func (o *opened) server(arrival simulate.Call, p *model.Proxy, w *world, routers int) (string, error) {
	in, err := w.Call(arrival)
	if err != nil {
		return "", err
	}
	o.assume(in)
	switch {
	case p.Type != model.ProxyRouter && arrival.Direct && in.Listener == "":
		return "the application itself", nil
	case p.Type != model.ProxyRouter:
		return outcome.Answer(in), nil
	case in.Status != 0 || in.Closed != "":
		return p.String() + " " + outcome.Answer(in), nil
	}
	onward := outcome.Outcome{}
	onward.Upstreams(in, "", o.nameAt)
	text := p.String() + " forwards to " + onward["destination"]
	behind, err := o.servers(&arrival, in, p, routers+1)
	if len(behind) > 0 {
		text += " (" + strings.Join(behind, "; ") + ")"
	}
	return text, err
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
