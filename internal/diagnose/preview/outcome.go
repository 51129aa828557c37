package preview

import (
	"context"
	"fmt"
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
		differ, err := c.changes(call)
		if err != nil {
			return err
		}
		c.report.Tried += len(from)
		if len(differ) > 0 {
			c.report.Differ += len(from)
			note(groups, call, from, differ)
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

// changes returns how the outcomes of a call differ.
func (c *comparison) changes(call *Call) ([]Change, error) {
	if c.before.caller(call.From) == nil && c.after.caller(call.From) == nil {
		return nil, fmt.Errorf("no proxy has the name %q: use NAME.NAMESPACE of a workload with a sidecar", call.From)
	}
	before, err := c.before.outcome(call)
	if err != nil {
		return nil, fmt.Errorf("before the change: %s from %s: %w", call.String(), call.From, err)
	}
	after, err := c.after.outcome(call)
	if err != nil {
		return nil, fmt.Errorf("after the change: %s from %s: %w", call.String(), call.From, err)
	}
	return changes(before, after), nil
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

// changes compares outcomes.
func changes(before, after outcome.Outcome) (out []Change) {
	before.Compare(after, outcome.Properties, func(p, b, a string) { out = append(out, Change{p, b, a}) })
	return out
}

// outcome follows a call on one side, and describes it.
func (o *opened) outcome(call *Call) (outcome.Outcome, error) {
	p := o.caller(call.From)
	if p == nil {
		return outcome.Outcome{"answer": "the proxy does not exist"}, nil
	}
	_, sim, r, err := o.follow(call)
	if err != nil {
		return nil, err
	}
	out := outcome.Outcome{}
	out.Describe(&sim, r)
	out.Upstreams(r, sim.Host, o.nameAt)
	servers, err := o.servers(&sim, r, p)
	if err != nil {
		return nil, err
	}
	out.Set("server", strings.Join(servers, "; "))
	return out, nil
}

// follow follows a call through the caller's proxy, which has w. The result is nil if the proxy does not exist.
func (o *opened) follow(call *Call) (w *world, sim simulate.Call, r *simulate.Result, err error) {
	p := o.caller(call.From)
	if p == nil {
		return nil, sim, nil, nil
	}
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

// servers returns what the sidecars of the endpoints do with a call, each text once.
func (o *opened) servers(call *simulate.Call, r *simulate.Result, from *model.Proxy) ([]string, error) {
	var out []string
	seen := map[*world]bool{}
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		for j := range u.Endpoints {
			e := &u.Endpoints[j]
			p := o.sidecarAt(e.Address)
			if p == nil || e.Percent == 0 || u.Percent == 0 {
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
			arrival := caller.Arrival(o.mesh, call, r, u, e, from, p)
			in, err := w.Call(arrival)
			if err != nil {
				return nil, fmt.Errorf("at %s: %w", p, err)
			}
			if arrival.Direct && in.Listener == "" {
				out = append(out, "the application itself")
				continue
			}
			out = append(out, outcome.Answer(in))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// sidecarAt returns the sidecar at an endpoint's address; nil: none.
func (o *opened) sidecarAt(address string) *model.Proxy {
	ip, _, err := net.SplitHostPort(address)
	if err != nil || o.byIP[ip] == nil || o.byIP[ip].Type == model.ProxyRouter {
		return nil
	}
	return o.byIP[ip]
}

// nameAt returns the name of the workload at an endpoint's address, or else the address.
func (o *opened) nameAt(address string) string {
	if ip, _, err := net.SplitHostPort(address); err == nil && o.byIP[ip] != nil {
		return o.byIP[ip].String()
	}
	return address
}
