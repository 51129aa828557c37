package compare

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/outcome"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// MaxCalls bounds how many calls Run follows. Report.Untried counts the others.
const MaxCalls = 500_000

// properties are what is compared, in the order in which users read it: those of package outcome, and those of filter chains.
var properties = slices.Concat(outcome.Properties, []string{"tokens", "access log", "tracing"})

// maxTexts bounds the texts of calls and proxies that a difference keeps. Its count has all.
const maxTexts = 200

// Run compares the decisions of two sides about calls. Without any calls it makes its own, by Calls. Its errors are the end of ctx
// and an UnknownProxy.
func Run(ctx context.Context, left, right *Side, calls []Call) (*Report, error) {
	c := &comparison{left: open(left), right: open(right), groups: map[string]*Difference{}, undecided: outcome.UndecidedCalls{}}
	r := &Report{Left: left.Name, Right: right.Name, Differences: []Difference{}}
	c.report, c.deliberate = r, left.kind() != right.kind()
	var both []string
	both, r.OnlyLeft, r.OnlyRight = shared(c.left, c.right)
	proxies, err := c.selected(both, left.Only)
	if err != nil {
		return nil, err
	}
	r.Proxies = len(proxies)
	if calls == nil {
		err = c.tryOwn(ctx, proxies)
	} else {
		err = c.tryAll(ctx, calls)
	}
	if err != nil {
		return nil, err
	}
	c.finish()
	return r, nil
}

// selected returns those of the proxies of both sides that the user names; all if the user names none.
func (c *comparison) selected(both, names []string) ([]string, error) {
	if len(names) == 0 {
		return both, nil
	}
	for _, n := range names {
		if c.left.byName[n] == nil && c.right.byName[n] == nil {
			return nil, UnknownProxy{n}
		}
	}
	return slices.DeleteFunc(both, func(n string) bool { return !slices.Contains(names, n) }), nil
}

// tryOwn follows the calls that Calls makes for each proxy.
func (c *comparison) tryOwn(ctx context.Context, proxies []string) error {
	for _, name := range proxies {
		calls, untried := Calls(c.left.byName[name], c.right.byName[name])
		c.report.Untried += untried
		if err := c.tryAll(ctx, calls); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) tryAll(ctx context.Context, calls []Call) error {
	for i := range calls {
		if err := c.try(ctx, &calls[i]); err != nil {
			return err
		}
	}
	return nil
}

// UnknownProxy is the error about a name that no proxy of a side has.
type UnknownProxy struct{ Name string }

// Error implements error.
func (e UnknownProxy) Error() string {
	return fmt.Sprintf("proxy %q: not found: use NAME.NAMESPACE of a Pod with a proxy on both sides", e.Name)
}

// comparison is the state of one Run.
type comparison struct {
	left, right *opened
	deliberate  bool // differences between Istio and Moonsail are expected
	report      *Report
	groups      map[string]*Difference
	undecided   outcome.UndecidedCalls
}

// try follows one call on both sides.
func (c *comparison) try(ctx context.Context, call *Call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.report.Calls >= MaxCalls {
		c.report.Untried++
		return nil
	}
	l, r := c.left.byName[call.Proxy], c.right.byName[call.Proxy]
	if l == nil || r == nil {
		return UnknownProxy{call.Proxy}
	}
	before, err := c.left.follow(call, l)
	if err != nil {
		c.undecided.Add(c.left.Name, err, call.String(), call.Proxy, 1)
		return nil
	}
	after, err := c.right.follow(call, r)
	if err != nil {
		c.undecided.Add(c.right.Name, err, call.String(), call.Proxy, 1)
		return nil
	}
	c.report.Calls++
	changes := changesOf(before.Outcome, after.Outcome)
	if len(changes) == 0 {
		c.report.Alike++
		return nil
	}
	c.report.Differ++
	c.note(&decided{call, before, after}, changes)
	return nil
}

// note adds a call to the difference with the same changes.
func (c *comparison) note(made *decided, changes []Change) {
	call, why := made.call, (*Deliberate)(nil)
	if c.deliberate {
		why = onPurpose(made, changes)
	}
	key := fmt.Sprint(changes, why)
	d := c.groups[key]
	if d == nil {
		d = &Difference{Changes: changes, Deliberate: why}
		c.groups[key] = d
	}
	d.Count++
	add(&d.Calls, call.String())
	add(&d.Proxies, call.Proxy)
	for _, o := range made.left.objects.and(made.right.objects).of(changes) {
		add(&d.Objects, o)
	}
	if d.Deliberate != nil {
		c.report.Deliberate++
	}
}

func add(list *[]string, text string) {
	if len(*list) < maxTexts && !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// finish sorts what the report lists.
func (c *comparison) finish() {
	for _, d := range c.groups {
		slices.Sort(d.Objects)
		c.report.Differences = append(c.report.Differences, *d)
	}
	rank := func(d *Difference) int {
		n := slices.Index(properties, d.Changes[0].What)
		if d.Deliberate != nil {
			n += len(properties)
		}
		return n
	}
	slices.SortFunc(c.report.Differences, func(a, b Difference) int {
		if n := rank(&a) - rank(&b); n != 0 {
			return n
		}
		return strings.Compare(fmt.Sprint(a.Calls[0], a.Proxies[0], a.Changes), fmt.Sprint(b.Calls[0], b.Proxies[0], b.Changes))
	})
	c.report.Undecided = c.undecided.Sorted()
}

// changesOf compares outcomes.
func changesOf(left, right outcome.Outcome) (out []Change) {
	left.Compare(right, properties, func(p, l, r string) { out = append(out, Change{p, l, r}) })
	return out
}

// followed is what becomes of a call on one side.
type followed struct {
	outcome.Outcome
	objects involved
	world   *simulate.World // of the first proxy
}

// follow follows a call through its first proxy, and then through the sidecars of the endpoints.
func (o *opened) follow(call *Call, p *Proxy) (*followed, error) {
	r, err := p.World.Call(call.Call)
	if err != nil {
		return nil, err
	}
	f := &followed{Outcome: outcome.Outcome{}, objects: p.objectsOf(r), world: p.World}
	f.Describe(&call.Call, r)
	f.Upstreams(r, call.Host, o.nameAt)
	f.chain(r.Filters)
	if call.Inbound {
		return f, nil
	}
	servers, err := o.servers(call, r, p, f)
	if err != nil {
		return nil, err
	}
	f.Set("server", strings.Join(servers, "; "))
	return f, nil
}

// nameAt returns the name of the workload at an endpoint's address with its port, or else the address.
func (o *opened) nameAt(address string) string {
	if ip, port, err := net.SplitHostPort(address); err == nil && o.byIP[ip] != nil {
		return o.byIP[ip].Name + ":" + port
	}
	return address
}

// servers returns what the sidecars of the endpoints do with a call, each text once.
func (o *opened) servers(call *Call, r *simulate.Result, from *Proxy, f *followed) ([]string, error) {
	var out []string
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		for j := range u.Endpoints {
			e := &u.Endpoints[j]
			ip, _, err := net.SplitHostPort(e.Address)
			if err != nil || e.Percent == 0 || u.Percent == 0 {
				continue
			}
			p := o.byIP[ip]
			if p == nil || p.Gateway {
				continue
			}
			arrival := call.Arrival(r, u, e, from.Principal)
			arrival.From = net.JoinHostPort(from.ip(), "40000")
			in, err := p.World.Call(arrival)
			if err != nil {
				return nil, fmt.Errorf("at %s: %w", p.Name, err)
			}
			f.objects = f.objects.and(p.objectsOf(in))
			add(&out, outcome.Answer(in))
		}
	}
	slices.Sort(out)
	return out, nil
}
