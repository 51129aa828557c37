package explain

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Call is a call as a user writes it.
type Call struct {
	From    string            // the calling proxy: name.namespace or node ID
	To      string            // a URL; the default scheme is http
	Method  string            // default GET, for grpc POST
	Headers map[string]string // request headers
	// Principal is the name in the certificate of a gateway's client; empty: it has none.
	Principal string
	// Elsewhere returns which node IDs are connected to another control plane. nil: there are no others.
	Elsewhere func(ids []string) map[string]bool
}

// Why is what decides a call.
type Why struct {
	Now time.Time `json:"now"`
	// Verdict is what becomes of the call.
	Verdict  *CallVerdict `json:"verdict"`
	From     string       `json:"from"`
	Gateway  bool         `json:"gateway,omitempty"` // From is a router, and the caller is outside of the mesh
	Method   string       `json:"method"`
	URL      string       `json:"url"`
	Host     string       `json:"host"`    // the full name
	Address  string       `json:"address"` // where the application connects
	Outbound *Passage     `json:"outbound"`
	// Inbound is what the sidecars of the endpoints do, as far as they are connected to this control plane. Notes name the
	// others.
	Inbound []*Passage `json:"inbound,omitempty"`
	// Notes explain the limits of this answer.
	Notes []string `json:"notes,omitempty"`
	// Unknown is set if no service of the mesh has the host, so that Address stands for one outside of the mesh.
	Unknown bool `json:"unknownHost,omitempty"`
}

// Passage is the part of a call in one proxy.
type Passage struct {
	Proxy   string           `json:"proxy"`
	Result  *simulate.Result `json:"result"`
	Objects []Source         `json:"objects"` // the objects that decided it
	// Accepts is the mutual TLS mode at the port where the call arrives; empty for the caller's side.
	Accepts string `json:"accepts,omitempty"`
	// Principal is the caller's name in its certificate, as this proxy sees it; empty: it sees none.
	Principal string `json:"principal,omitempty"`

	call *simulate.Call
}

// Source is an object and what it decides.
type Source struct {
	Object model.Key `json:"object"`
	Origin string    `json:"origin,omitempty"` // file and line, or the API server
	// Field is the part of the object that decides: "spec.rules[0]". Origin has its line, if that is known.
	Field   string `json:"field,omitempty"`
	Decides string `json:"decides"`
	// Error and Partly have the meaning of those of Explanation.
	Error  *problem.Problem `json:"error,omitempty"`
	Partly bool             `json:"partly,omitempty"`
}

// UndecidedError is the error for a call that the simulator cannot decide, because the proxy uses a feature of Envoy that it
// does not know.
type UndecidedError struct {
	Proxy string
	Err   error
}

// Error implements error.
func (e UndecidedError) Error() string {
	return fmt.Sprintf("%s: call is undecided: %v", e.Proxy, e.Err)
}

// Unwrap returns the reason.
func (e UndecidedError) Unwrap() error { return e.Err }

// Why follows a call through the caller's proxy, and through the sidecars of the endpoints.
func (x *Explainer) Why(c Call) (*Why, error) {
	u, err := parseURL(c.To)
	if err != nil {
		return nil, err
	}
	world, err := x.world(c.From)
	if err != nil {
		return nil, err
	}
	snap, p := x.Snapshot(), world.proxy
	w := &Why{Now: time.Now(), From: p.String(), URL: u.String(), Gateway: p.Type == model.ProxyRouter}
	w.Notes = append(w.Notes, world.notes()...)
	call, to := x.call(w, snap, world, u, c)
	if w.Gateway {
		w.enter(world, &call)
		call.Principal = c.Principal
	}
	w.Method, w.Address = call.Method, call.To
	if err := call.Check(); err != nil {
		return nil, err
	}
	result, err := world.Call(call)
	if err != nil {
		return nil, UndecidedError{Proxy: p.String(), Err: err}
	}
	if awaited := world.awaited(result); len(awaited) > 0 {
		w.Notes = append(w.Notes, "the proxy gets these on demand and does not have them yet, so the call waits for them: "+strings.Join(awaited, ", "))
	}
	w.Outbound = &Passage{Proxy: p.String(), Result: result, Objects: x.sources(snap, world, &call, result), Principal: call.Principal, call: &call}
	x.follow(w, world, &call, c.Elsewhere)
	x.unknown(w, snap, world, to, call.Direct)
	return w, nil
}

func parseURL(to string) (*url.URL, error) {
	if !strings.Contains(to, "://") {
		to = "http://" + to
	}
	u, err := url.Parse(to)
	if err != nil {
		return nil, fmt.Errorf("%q: not a URL: %w", to, err)
	}
	switch simulate.Protocol(u.Scheme) {
	case simulate.HTTP, simulate.HTTP2, simulate.GRPC, simulate.TCP, simulate.TLS, simulate.HTTPS:
	default:
		return nil, fmt.Errorf("%q: unknown scheme: use http, http2, grpc, tcp, tls or https", to)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("%q: no host: add one, for example http://reviews.shop:8080", to)
	}
	return u, nil
}

// defaultPorts are by scheme. The default for other schemes is 80.
var defaultPorts = map[string]string{"https": "443", "tls": "443"}

// call returns the call that an application would make.
func (x *Explainer) call(w *Why, snap *store.Snapshot, world *proxyWorld, u *url.URL, c Call) (simulate.Call, *destination) {
	p := world.proxy
	port := u.Port()
	if port == "" {
		port = defaultPorts[u.Scheme]
	}
	if port == "" {
		port = "80"
	}
	address, host, known := caller.NewResolver(x.base(), snap).Resolve(p, u.Hostname())
	w.Host = string(host)
	w.Unknown = !known && host != model.Host(address) && !w.Gateway
	if known {
		w.Notes = append(w.Notes, wrongPort(snap, host, port)...)
	}
	out := simulate.Call{
		To: net.JoinHostPort(address, port), Protocol: simulate.Protocol(u.Scheme), Host: u.Host, Path: u.RequestURI(),
		Method: c.Method, Headers: c.Headers, From: net.JoinHostPort(caller.FirstIP(p), "40000"),
	}
	out = out.WithAuthority()
	if u.Scheme == "tls" || u.Scheme == "https" {
		out.SNI = u.Hostname()
	}
	if out.Method == "" {
		out.Method = out.Protocol.DefaultMethod()
	}
	if p.Interception == model.InterceptNone && !w.Gateway {
		var assumed bool
		out.Direct = true
		if out.To, assumed = world.Entrance(out, port, p.IPs); assumed {
			w.Notes = append(w.Notes, "nothing intercepts this workload's calls: this answer assumes that it calls its sidecar at "+out.To)
		}
	}
	return out, &destination{name: u.Hostname(), host: host, port: port, known: known}
}

// nearService suggests the service with a similar name: in the proxy's namespace if the name has no dot.
func nearService(snap *store.Snapshot, name, namespace string) string {
	var names []string
	for o := range snap.All(model.KindService) {
		m := o.Metadata()
		if m.Namespace == namespace {
			names = append(names, m.Name)
		}
		names = append(names, m.Name+"."+m.Namespace)
	}
	for o := range snap.All(model.KindServiceEntry) {
		for _, h := range o.(*model.ServiceEntry).Hosts {
			names = append(names, string(h))
		}
	}
	slices.Sort(names)
	return spelling.DidYouMean(name, names)
}

// wrongPort notes that a service has no such port; nil: it has it.
func wrongPort(snap *store.Snapshot, host model.Host, port string) []string {
	var ports []string
	look := func(s *model.Service) bool {
		if s.Hostname != host {
			return false
		}
		for i := range s.Ports {
			number := strconv.FormatUint(uint64(s.Ports[i].Number), 10)
			if number == port {
				return true
			}
			ports = append(ports, number)
		}
		return false
	}
	for o := range snap.All(model.KindService) {
		if look(o.(*model.Service)) {
			return nil
		}
	}
	for o := range snap.All(model.KindServiceEntry) {
		for _, s := range o.(*model.ServiceEntry).Services() {
			if look(s) {
				return nil
			}
		}
	}
	if len(ports) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s has no port %s: its ports are %s", host, port, strings.Join(slices.Compact(ports), ", "))}
}

// hop is a call's way to one endpoint.
type hop struct {
	upstream *simulate.Upstream
	endpoint *simulate.Endpoint
}

// hops returns the ways to the endpoints that get a call: the first of each cluster, then the second of each, and so on.
func hops(r *simulate.Result) []hop {
	used := make([][]hop, len(r.Upstreams)) // by cluster
	longest := 0
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		for j := range u.Endpoints {
			if e := &u.Endpoints[j]; u.Percent > 0 && e.Percent > 0 {
				used[i] = append(used[i], hop{u, e})
			}
		}
		longest = max(longest, len(used[i]))
	}
	var out []hop
	for n := range longest {
		for _, of := range used {
			if n < len(of) {
				out = append(out, of[n])
			}
		}
	}
	return out
}

// follow looks at the sidecars of the endpoints that get the call, and decides what becomes of it.
func (x *Explainer) follow(w *Why, world *proxyWorld, call *simulate.Call, connectedTo func([]string) map[string]bool) {
	var ends endList
	defer func() { w.Verdict = ends.verdict() }()
	r := w.Outbound.Result
	if end := world.refused(w.Outbound); end != nil {
		x.reason(world, w.Outbound, end)
		ends.add(end)
		return
	}
	rest := 100.0 // in percent: what no fault aborts
	if end := aborted(w.Outbound); end != nil {
		ends.add(end)
		rest -= end.Percent
	}
	elsewhere := sidecarsElsewhere{
		workloads: sync.OnceValue(func() map[string]*model.Workload { return workloadsByIP(x.Snapshot()) }),
		gone:      sync.OnceValue(func() map[string]distribution.Disconnected { return x.disconnectedByIP(connectedTo) }),
		now:       w.Now,
	}
	followed := arrivals{ends: map[string][]*End{}}
	for _, h := range hops(r) {
		var end *End
		if !x.hasSidecar(h.endpoint) {
			end = x.arrive(w, h, world.proxy, call, &elsewhere)
		} else if workload := elsewhere.workload(h.upstream, h.endpoint); followed.follows(workload) {
			end = x.arrive(w, h, world.proxy, call, &elsewhere)
			followed.add(workload, end)
		} else {
			end = followed.assume(workload, elsewhere.name(h.endpoint))
		}
		end.Percent = rest * h.upstream.Percent * h.endpoint.Percent / 1e4
		ends.add(end)
	}
	w.Notes = append(append(w.Notes, elsewhere.notes()...), followed.notes()...)
	for i := range r.Upstreams {
		if u := &r.Upstreams[i]; !slices.ContainsFunc(u.Endpoints, func(e simulate.Endpoint) bool { return e.Percent > 0 }) {
			end := withoutEndpoint(w.Outbound, u)
			x.reason(world, w.Outbound, end)
			end.Percent = rest * u.Percent / 100
			ends.add(end)
		}
	}
}

// arrive returns the end of a call at an endpoint.
func (x *Explainer) arrive(w *Why, h hop, from *model.Proxy, call *simulate.Call, elsewhere *sidecarsElsewhere) *End {
	passage, sidecar, err := x.inbound(w.Outbound.Result, h.upstream, h.endpoint, from, call)
	switch {
	case err != nil:
		w.Notes = append(w.Notes, fmt.Sprintf("the sidecar of %s: %v", h.endpoint.Address, err))
	case passage != nil:
		w.Inbound = append(w.Inbound, passage)
		w.Notes = append(w.Notes, sidecar.notes()...)
		end := sidecar.arrived(passage, h.upstream, h.endpoint, w.Outbound.Result.RouteConfig != "", w.From)
		x.reason(sidecar, passage, end)
		return end
	default:
		elsewhere.add(h.upstream, h.endpoint)
	}
	if h.upstream.Cluster == ir.PassthroughCluster {
		return &End{Outcome: Passed, At: []string{h.endpoint.Address}, Cause: h.upstream.Cluster}
	}
	end := &End{Outcome: Reaches, At: []string{elsewhere.name(h.endpoint)}, Cause: elsewhere.stuck(h.endpoint)}
	if err != nil && !errors.Is(err, errNotBetween) {
		end.Cause = notFollowed
	}
	return end
}

// hasSidecar reports whether a proxy is connected at the address of an endpoint.
func (x *Explainer) hasSidecar(e *simulate.Endpoint) bool {
	ip, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		return false // a socket's path
	}
	_, ok := x.Proxies.ProxyAt(ip)
	return ok
}

// sidecarsElsewhere are endpoints with sidecars that are not connected to this control plane.
type sidecarsElsewhere struct {
	workloads func() map[string]*model.Workload           // by IP address
	gone      func() map[string]distribution.Disconnected // by IP address
	now       time.Time
	names     []string
	stuckOnes []distribution.Disconnected
}

// disconnectedOf returns the proxy at an endpoint that has disconnected.
func (f *sidecarsElsewhere) disconnectedOf(e *simulate.Endpoint) (distribution.Disconnected, bool) {
	address, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		return distribution.Disconnected{}, false
	}
	p, ok := f.gone()[address]
	return p, ok
}

// stuck describes the sidecar of an endpoint that has disconnected; empty: none has.
func (f *sidecarsElsewhere) stuck(e *simulate.Endpoint) string {
	if p, ok := f.disconnectedOf(e); ok {
		return "whose sidecar is disconnected for " + ageOf(f.now.Sub(p.Since)) + " and may not answer"
	}
	return ""
}

func ageOf(d time.Duration) string { return max(0, d).Round(time.Second).String() }

// disconnectedByIP returns the proxies that have disconnected by their addresses, but not those that are connected to another
// control plane.
func (x *Explainer) disconnectedByIP(connectedTo func([]string) map[string]bool) map[string]distribution.Disconnected {
	all := x.Disconnected()
	var back map[string]bool
	if connectedTo != nil && len(all) > 0 {
		ids := make([]string, len(all))
		for i := range all {
			ids[i] = all[i].ID
		}
		back = connectedTo(ids)
	}
	out := map[string]distribution.Disconnected{}
	for _, p := range all {
		if back[p.ID] {
			continue
		}
		for _, ip := range p.IPs {
			out[ip] = p
		}
	}
	return out
}

// add adds an endpoint, unless it has no sidecar as far as this control plane knows.
func (f *sidecarsElsewhere) add(u *simulate.Upstream, e *simulate.Endpoint) {
	w, ip := f.at(e)
	if !ip {
		return
	}
	if p, ok := f.disconnectedOf(e); ok {
		if !slices.ContainsFunc(f.stuckOnes, func(o distribution.Disconnected) bool { return o.ID == p.ID }) {
			f.stuckOnes = append(f.stuckOnes, p)
		}
		return
	}
	has := u.TLS != nil && u.TLS.Cert == simulate.MeshCertificate && !e.Plain || w != nil && w.SpeaksMTLS()
	if name := f.name(e); has && !slices.Contains(f.names, name) {
		f.names = append(f.names, name)
	}
}

// at returns the workload of an endpoint; nil: none is known. ip is not set if the endpoint is a socket's path.
func (f *sidecarsElsewhere) at(e *simulate.Endpoint) (w *model.Workload, ip bool) {
	address, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		return nil, false
	}
	return f.workloads()[address], true
}

// name returns the name of an endpoint's workload, or the endpoint's address.
func (f *sidecarsElsewhere) name(e *simulate.Endpoint) string {
	if w, _ := f.at(e); w != nil {
		return w.Name + "." + w.Namespace
	}
	return e.Address
}

func (f *sidecarsElsewhere) notes() (notes []string) {
	for _, p := range f.stuckOnes {
		name := p.Name + "." + p.Namespace
		notes = append(notes, fmt.Sprintf("the sidecar of %s is disconnected for %s: it may be stuck, so that the call hangs, and this answer leaves out "+
			"whether it accepts the call: see 'moonsail proxies %s'", name, ageOf(f.now.Sub(p.Since)), name))
	}
	if len(f.names) == 0 {
		return notes
	}
	return append(notes, fmt.Sprintf("no sidecar of %s is connected to this control plane, so this answer leaves out whether the calls to it are accepted: "+
		"see 'moonsail proxies' for the proxies of all control planes", some(f.names)))
}

func workloadsByIP(snap *store.Snapshot) map[string]*model.Workload {
	out := map[string]*model.Workload{}
	for _, kind := range []model.Kind{model.KindWorkloadEntry, model.KindPod} {
		for o := range snap.All(kind) {
			if w, ok := o.(*model.Workload); ok {
				for _, ip := range w.Addresses {
					out[ip] = w
				}
			}
		}
	}
	return out
}

// errNotBetween is the note for an application that takes the call itself.
var errNotBetween = errors.New("it does not intercept calls and does not listen there, so the application gets the call itself: " +
	"add an ingress listener to its Sidecar")

// inbound returns what an endpoint's sidecar does, and what it has; nil if none is connected here.
func (x *Explainer) inbound(r *simulate.Result, u *simulate.Upstream, e *simulate.Endpoint, from *model.Proxy, call *simulate.Call) (*Passage, *proxyWorld, error) {
	ip, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // a socket's path: no proxy is there
	}
	id, ok := x.Proxies.ProxyAt(ip)
	if !ok {
		return nil, nil, nil
	}
	world, err := x.world(id)
	var gone NotConnected
	if errors.As(err, &gone) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	p := world.proxy
	snap := x.Snapshot()
	c := caller.Arrival(x.mesh(snap), call, r, u, e, from, p)
	result, err := world.Call(c)
	if err != nil {
		return nil, nil, err
	}
	if c.Direct && result.Listener == "" && p.Type != model.ProxyRouter {
		return nil, nil, errNotBetween
	}
	passage := &Passage{Proxy: p.String(), Result: result, Objects: x.sources(snap, world, &c, result), Principal: c.Principal, call: &c}
	x.accepted(snap, world, e.Address, passage)
	return passage, world, nil
}

// sources returns the objects that decided the part of a call in one proxy.
func (x *Explainer) sources(snap *store.Snapshot, w *proxyWorld, call *simulate.Call, r *simulate.Result) []Source {
	s := &sourceList{snap: snap, errorOf: x.errorOf, placeOf: x.placeOf}
	if key, ok := x.Proxies.SidecarOf(w.proxy.ID); ok {
		s.add(key, "what the proxy sees", "")
	}
	s.gateways(w, r)
	s.decisions(r.Decisions)
	s.route(call, r)
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		s.path(u.Origin, "policy of "+u.Cluster)
		s.path(u.TLSOrigin, "TLS to "+u.Cluster)
		for _, k := range w.madeFrom(resource.Cluster, u.Cluster, model.KindService, model.KindServiceEntry) {
			if defines(snap.Get(k), model.Host(u.Service)) {
				s.add(k, "cluster "+u.Cluster, "")
			}
		}
		for _, k := range w.madeFrom(resource.Endpoints, u.Cluster, model.KindEndpointSlice) {
			if slice, ok := snap.Get(k).(*model.EndpointSlice); ok && holdsAny(slice, u) {
				s.add(k, "endpoints of "+u.Cluster, "")
			}
		}
	}
	return s.list
}

// sourceList collects sources, each once.
type sourceList struct {
	snap    *store.Snapshot
	errorOf func(model.Key) (*problem.Problem, bool)
	placeOf func(m *model.Meta, field string) string
	list    []Source
}

// add adds an object, and the field that decides; empty: the whole object.
func (s *sourceList) add(key model.Key, decides, field string) {
	if slices.ContainsFunc(s.list, func(o Source) bool { return o.Object == key && o.Decides == decides }) {
		return
	}
	o := Source{Object: key, Decides: decides, Field: field}
	o.Error, o.Partly = s.errorOf(key)
	if object := s.snap.Get(key); object != nil {
		o.Origin = s.placeOf(object.Metadata(), field)
	}
	s.list = append(s.list, o)
}

// path adds the object of "/apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME".
func (s *sourceList) path(path, decides string) {
	namespace, config, name, _ := resourcename.CutConfigPath(path)
	if kind := model.KindOfConfig(config); kind != "" {
		s.add(model.Key{Kind: kind, Namespace: namespace, Name: name}, decides, "")
	}
}

// route adds the object of the route that a request found, and its rule.
func (s *sourceList) route(call *simulate.Call, r *simulate.Result) {
	key, ok := keyOfPath(r.RouteOrigin)
	if !ok {
		return
	}
	decides := strings.TrimSpace("route " + r.Route)
	if field := routeField(s.snap, key, call, r); field != "" {
		s.add(key, decides+" by "+short(field), field)
		return
	}
	s.add(key, decides, "")
}

// routeField returns the rule of a VirtualService that a request found: "spec.http[0]"; empty: it is not known.
func routeField(snap *store.Snapshot, key model.Key, call *simulate.Call, r *simulate.Result) string {
	if v, ok := snap.Get(key).(*model.VirtualService); ok {
		if i := routeOf(v, call, r); i >= 0 {
			return fieldOfRoute(i)
		}
	}
	return ""
}

// ofKinds returns the members of a set that are of some kinds.
func ofKinds(o *model.Origins, kinds []model.Kind) []model.Key {
	return slices.DeleteFunc(slices.Clone(o.Keys()), func(k model.Key) bool { return !slices.Contains(kinds, k.Kind) })
}

// defines reports whether an object defines the service of a host.
func defines(o model.Object, host model.Host) bool {
	switch o := o.(type) {
	case *model.Service:
		return o.Hostname == host
	case *model.ServiceEntry:
		return slices.ContainsFunc(o.Services(), func(s *model.Service) bool { return s.Hostname == host })
	}
	return false
}

// holdsAny reports whether a slice has an endpoint that the call may reach.
func holdsAny(slice *model.EndpointSlice, u *simulate.Upstream) bool {
	for _, m := range slice.Members {
		for _, e := range u.Endpoints {
			if ip, _, err := net.SplitHostPort(e.Address); err == nil && slices.Contains(m.Addresses, ip) {
				return true
			}
		}
	}
	return false
}
