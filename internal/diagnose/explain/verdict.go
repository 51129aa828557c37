package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// CallVerdict is what becomes of a call, and what decides it.
type CallVerdict struct {
	Text    string   `json:"text"`              // in one line
	Reasons []string `json:"reasons,omitempty"` // of Text, if it needs more lines
	Ends    []End    `json:"ends"`              // the largest share first
}

// Outcome is how a call ends.
type Outcome string

// The outcomes.
const (
	Reaches    Outcome = "reaches"    // an endpoint gets it
	Passed     Outcome = "passed"     // it is passed on to its original destination, which is not of the mesh
	Answered   Outcome = "answered"   // a proxy answers it
	Closed     Outcome = "closed"     // a proxy closes the connection
	Unresolved Outcome = "unresolved" // the host has no address, so the application cannot call it
	Local      Outcome = "local"      // it does not leave the workload, so no proxy sees it
)

// HasNoWay reports whether no proxy sees the call: the host has no address, or it is the workload itself.
func (w *Why) HasNoWay() bool {
	return w.Verdict != nil && slices.ContainsFunc(w.Verdict.Ends, func(e End) bool { return e.Outcome == Unresolved || e.Outcome == Local })
}

// End is one end of a call.
type End struct {
	Percent float64 `json:"percent"`
	Outcome Outcome `json:"outcome"`
	// Status is the HTTP status that a proxy answers with. Answer is the status as the caller sees it.
	Status int    `json:"status,omitempty"`
	Answer string `json:"answer,omitempty"`
	// At are the proxies that end the call, or the endpoints that get it.
	At []string `json:"at,omitempty"`
	// Via is the caller's proxy, if it answers a request because those At closed its connection.
	Via    string      `json:"via,omitempty"`
	Cause  string      `json:"cause,omitempty"`
	Detail string      `json:"detail,omitempty"` // of Cause
	By     []model.Key `json:"by,omitempty"`     // the objects that decide it

	shares  map[string]float64 // of At
	reasons []string           // of the verdict
}

// deniedPrefix begins the cause of a policy.
const deniedPrefix = "denied"

// text describes an end.
func (e *End) text() string {
	switch e.Outcome {
	case Reaches:
		return "reaches " + reached(e.shares, e.Percent) + prefixed(", ", e.Cause)
	case Passed:
		return "passed on unchanged to " + strings.Join(e.At, ", ") + prefixed(": ", e.Cause)
	case Local:
		return "stays in the workload: " + e.Cause
	case Closed:
		if strings.HasPrefix(e.Cause, deniedPrefix) {
			return "connection " + e.Cause + " at " + some(e.At) + prefixed(": ", e.Detail)
		}
		return "connection closed by " + some(e.At) + prefixed(": ", e.Cause)
	case Answered:
		if e.Via != "" {
			behind := End{Outcome: Closed, At: e.At, Cause: e.Cause, Detail: e.Detail}
			return e.Answer + " from " + e.Via + ": " + behind.text()
		}
		if strings.HasPrefix(e.Cause, deniedPrefix) {
			return e.Answer + " " + e.Cause + " at " + some(e.At) + prefixed(": ", e.Detail)
		}
		return e.Answer + " from " + some(e.At) + prefixed(": ", e.Cause)
	}
	return "fails: " + e.Cause
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// maxNamed bounds the proxies and endpoints that a text names.
const maxNamed = 3

// some returns the first names of a list.
func some(names []string) string {
	text := strings.Join(names[:min(maxNamed, len(names))], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// reached returns "a 70 %, b 30 %", or "a" if that gets all. Shares are of the whole.
func reached(shares map[string]float64, whole float64) string {
	names := slices.SortedFunc(maps.Keys(shares), func(a, b string) int {
		return cmp.Or(cmp.Compare(shares[b], shares[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, n := range names {
		if len(names) > 1 {
			n += " " + percentOf(shares[n]*100/whole)
		}
		parts = append(parts, n)
	}
	return some(parts)
}

// percentOf never rounds a part up to all, or down to none.
func percentOf(f float64) string {
	text := strconv.FormatFloat(f, 'f', 1, 64)
	switch {
	case f < 100 && text == "100.0":
		text = "99.9"
	case f > 0 && text == "0.0":
		text = "0.1"
	}
	return strings.TrimSuffix(text, ".0") + " %"
}

// same reports whether two ends differ only in their place.
func (e *End) same(o *End) bool {
	return e.Outcome == o.Outcome && e.Answer == o.Answer && e.Cause == o.Cause && e.Detail == o.Detail && e.Via == o.Via
}

// endList collects ends, those that differ only in their place as one.
type endList []*End

func (l *endList) add(e *End) {
	i := slices.IndexFunc(*l, e.same)
	if i < 0 {
		own := *e
		own.Percent, own.At, own.shares = 0, nil, map[string]float64{}
		i, *l = len(*l), append(*l, &own)
	}
	into := (*l)[i]
	into.Percent += e.Percent
	for _, at := range e.At {
		if _, ok := into.shares[at]; !ok {
			into.At = append(into.At, at)
		}
		into.shares[at] += e.Percent
	}
}

// verdict returns the verdict of these ends.
func (l *endList) verdict() *CallVerdict {
	ends := slices.DeleteFunc(*l, func(e *End) bool { return e.Percent <= 0 })
	slices.SortStableFunc(ends, func(a, b *End) int { return cmp.Compare(b.Percent, a.Percent) })
	v := &CallVerdict{Ends: []End{}}
	var texts []string
	for _, e := range ends {
		text := e.text()
		if len(ends) > 1 {
			text = percentOf(e.Percent) + " " + text
		}
		texts = append(texts, text)
		for _, reason := range e.reasons {
			if !slices.Contains(v.Reasons, reason) {
				v.Reasons = append(v.Reasons, reason)
			}
		}
		e.Percent = math.Round(e.Percent*100) / 100
		v.Ends = append(v.Ends, *e)
	}
	v.Text = strings.Join(texts, "; ")
	return v
}

// refused returns the end of a call at a proxy that does not forward it; nil: it forwards it.
func (w *proxyWorld) refused(p *Passage) *End {
	r := p.Result
	e := &End{Percent: 100, At: []string{p.Proxy}}
	switch {
	case r.Closed != "":
		e.Outcome, e.Cause = Closed, r.Closed
	case r.Status != 0:
		e.Outcome, e.Status, e.Answer, e.Cause = Answered, r.Status, r.StatusText(), r.Reason
	default:
		return nil
	}
	for i := range r.Decisions {
		if d := &r.Decisions[i]; d.Refuses && !d.DryRun {
			e.Cause, e.Detail, e.By = w.denial(r, d)
			return e
		}
	}
	switch key, ok := keyOfPath(r.RouteOrigin); {
	case r.Location != "":
		e.Cause = strings.TrimSuffix("redirect to "+r.Location+", "+r.Reason, ", ")
		fallthrough
	case ok && (r.Fault != nil || r.Reason == "" && len(r.Upstreams) == 0):
		if e.Cause == "" {
			e.Cause = "direct response"
		}
		if ok {
			e.Cause, e.By = e.Cause+" of "+objectText(key), []model.Key{key}
		}
	case len(r.Upstreams) > 0:
		e.Cause = unreached(r)
	}
	return e
}

// reason adds the reasons of an end at a proxy that does not forward a call.
func (x *Explainer) reason(w *proxyWorld, p *Passage, e *End) {
	snap := x.Snapshot()
	for i := range p.Result.Decisions {
		if d := &p.Result.Decisions[i]; d.Refuses && !d.DryRun && e.Outcome != Reaches {
			e.reasons = x.whyDenied(snap, d, p)
			return
		}
	}
	if e.Outcome == Reaches || !strings.Contains(e.Cause, noEndpoint) {
		return
	}
	missing := x.missing(snap, w, p)
	if missing == "" {
		return
	}
	e.Cause = missing
	key, ok := keyOfPath(p.Result.RouteOrigin)
	if !ok {
		return
	}
	e.By = []model.Key{key}
	if o := snap.Get(key); o != nil {
		field := routeField(snap, key, p.call, p.Result)
		e.reasons = []string{strings.TrimSpace("route of "+objectText(key)+" "+short(field)) + inFile(x.placeOf(o.Metadata(), field))}
	}
}

// missing explains the first cluster of a call that the proxy does not have; empty: it has all.
func (x *Explainer) missing(snap *store.Snapshot, w *proxyWorld, p *Passage) string {
	for i := range p.Result.Upstreams {
		u := &p.Result.Upstreams[i]
		c, ok := resourcename.ParseCluster(u.Cluster)
		if !u.Unknown() || !ok {
			continue
		}
		known := false
		for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
			for o := range snap.All(kind) {
				known = known || defines(o, c.Host)
			}
		}
		switch {
		case !known:
			return fmt.Sprintf("no Service or ServiceEntry has the host %s", c.Host)
		case c.Subset != "" && !hasSubset(snap, c.Host, c.Subset):
			return fmt.Sprintf("subset %q of %s is in no DestinationRule", c.Subset, c.Host)
		case c.Subset != "":
			return fmt.Sprintf("subset %q of %s:%d is in no DestinationRule that applies to %s", c.Subset, c.Host, c.Port, w.proxy)
		}
		return fmt.Sprintf("%s does not have %s:%d: the service has no such port, or is not visible to it", w.proxy, c.Host, c.Port)
	}
	return ""
}

// hasSubset reports whether a DestinationRule defines a subset of a host.
func hasSubset(snap *store.Snapshot, host model.Host, subset string) bool {
	for o := range snap.All(model.KindDestinationRule) {
		r, ok := o.(*model.DestinationRule)
		if ok && r.Host.Matches(host) && slices.ContainsFunc(r.Subsets, func(s model.Subset) bool { return s.Name == subset }) {
			return true
		}
	}
	return false
}

// noEndpoint begins the cause of a call to a cluster without endpoints.
const noEndpoint = "no healthy endpoint"

// unreached explains why no upstream takes a call.
func unreached(r *simulate.Result) string {
	var names []string
	for i := range r.Upstreams {
		name := r.Upstreams[i].Cluster
		if c, ok := resourcename.ParseCluster(name); ok {
			name = fmt.Sprintf("%s:%d", c.Host, c.Port)
			if c.Subset != "" {
				name = "subset " + c.Subset + " of " + name
			}
		}
		names = append(names, name)
	}
	text := cmp.Or(r.Reason, r.Closed)
	if text == simulate.NoHealthyUpstream {
		return noEndpoint + " in " + some(names)
	}
	return text + " " + some(names)
}

// denial describes the decision of a policy that refuses a call.
func (w *proxyWorld) denial(r *simulate.Result, d *simulate.Decision) (cause, detail string, by []model.Key) {
	var names []string
	for _, name := range append([]string{d.Policy}, d.Among...) {
		if ns, name, ok := strings.Cut(name, "/"); ok {
			by = append(by, model.Key{Kind: model.KindAuthorizationPolicy, Namespace: ns, Name: name})
			names = append(names, ns+"/"+name)
		}
	}
	switch {
	case d.Action == "JWT":
		by = w.madeFrom(resource.Listener, r.Listener, model.KindRequestAuthentication)
		if len(by) == 1 {
			return deniedPrefix + " by " + objectText(by[0]), tokenCause(d), by
		}
		return deniedPrefix, tokenCause(d), by
	case len(d.Among) > 0:
		return deniedPrefix + " by AuthorizationPolicy " + some(names), "no rule allows it", by
	case len(names) == 1:
		return deniedPrefix + " by AuthorizationPolicy " + names[0], d.Cause, by
	}
	return deniedPrefix + " by a policy with action " + d.Action, d.Cause, by
}

// tokenCause returns what is wrong with a token.
func tokenCause(d *simulate.Decision) string {
	if strings.HasPrefix(d.Cause, "token") {
		return d.Cause
	}
	return "token: " + d.Cause
}

// objectText returns "VirtualService shop/reviews".
func objectText(k model.Key) string { return strings.Replace(k.String(), "/", " ", 1) }

// keyOfPath returns the object of a path in Istio's metadata.
func keyOfPath(path string) (model.Key, bool) {
	namespace, config, name, _ := resourcename.CutConfigPath(path)
	kind := model.KindOfConfig(config)
	return model.Key{Kind: kind, Namespace: namespace, Name: name}, kind != ""
}

// arrived returns the end of a call at the sidecar of an endpoint. http is set if the caller's proxy forwards requests, and not
// only a connection.
func (w *proxyWorld) arrived(p *Passage, u *simulate.Upstream, e *simulate.Endpoint, http bool, from string) *End {
	end := w.refused(p)
	if end == nil {
		end = &End{Outcome: Reaches, At: []string{p.Proxy}}
		for i := range p.Result.Decisions {
			if d := &p.Result.Decisions[i]; d.Asks != "" && !d.Refuses {
				end.Cause = "if the external authorizer " + d.Asks + " allows it"
			}
		}
		return end
	}
	if end.Outcome != Closed {
		return end
	}
	if (u.TLS == nil || e.Plain) && strings.HasPrefix(p.Accepts, string(model.MTLSStrict)) {
		end.Cause = "it accepts only mutual TLS, and the call is in plain text"
		for _, o := range p.Objects {
			if o.Object.Kind == model.KindPeerAuthentication {
				end.Cause += ": " + objectText(o.Object)
				end.By = append(end.By, o.Object)
			}
		}
	}
	if http {
		end.closedBehind(from)
	}
	return end
}

// closedBehind makes a closed connection the answer of the proxy that forwarded requests on it.
func (e *End) closedBehind(proxy string) {
	e.Outcome, e.Status, e.Answer, e.Via = Answered, http.StatusServiceUnavailable, strconv.Itoa(http.StatusServiceUnavailable), proxy
}

// aborted returns the end of the requests that a fault aborts, if it aborts a part of them; nil: it aborts none.
func aborted(p *Passage) *End {
	f := p.Result.Fault
	if f == nil || f.AbortPercent == 0 || f.Abort == 0 && f.AbortGRPC == nil {
		return nil
	}
	e := &End{Percent: f.AbortPercent, Outcome: Answered, Status: int(f.Abort), Answer: strconv.Itoa(int(f.Abort)), At: []string{p.Proxy}, Cause: "fault"}
	if f.AbortGRPC != nil {
		e.Status, e.Answer = http.StatusOK, fmt.Sprintf("gRPC status %d", *f.AbortGRPC)
	}
	if key, ok := keyOfPath(p.Result.RouteOrigin); ok {
		e.Cause, e.By = "fault of "+objectText(key), []model.Key{key}
	}
	return e
}

// withoutEndpoint returns the end of a call to a cluster that has no endpoint for it.
func withoutEndpoint(p *Passage, u *simulate.Upstream) *End {
	e := &End{Outcome: Closed, At: []string{p.Proxy}, Cause: unreached(&simulate.Result{Upstreams: []simulate.Upstream{*u}, Reason: simulate.NoHealthyUpstream})}
	if p.Result.RouteConfig != "" {
		e.Outcome, e.Status, e.Answer = Answered, http.StatusServiceUnavailable, strconv.Itoa(http.StatusServiceUnavailable)
	}
	return e
}
