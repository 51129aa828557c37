package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Shape is the size of a mesh.
type Shape struct {
	Clients   int  `json:"clients"`
	Services  int  `json:"services"`  // with two workloads each: v1 and v2
	Externals int  `json:"externals"` // hosts of ServiceEntries
	APIServer bool `json:"api_server"`
}

// ShapeOf returns the shape of a mesh with about n proxies.
func ShapeOf(n int, apiServer bool) Shape {
	clients := max(1, n/3)
	return Shape{Clients: clients, Services: max(1, (n-clients)/2), Externals: 1 + n/8, APIServer: apiServer}
}

// Proxies returns the number of proxies.
func (s Shape) Proxies() int { return s.Clients + 2*s.Services }

func clientName(n int) string { return fmt.Sprintf("c%d", n) }

func serviceName(n int) string { return fmt.Sprintf("s%d", n) }

func externalName(n int) string { return fmt.Sprintf("e%d", n) }

// Versions of each service. An instance is named "s1-v2".
var versions = []string{"v1", "v2"}

func instanceName(service, version string) string { return service + "-" + version }

// clients returns the names of all clients.
func (s Shape) clients() (out []string) {
	for n := range s.Clients {
		out = append(out, clientName(n+1))
	}
	return out
}

func (s Shape) services() (out []string) {
	for n := range s.Services {
		out = append(out, serviceName(n+1))
	}
	return out
}

func (s Shape) externals() (out []string) {
	for n := range s.Externals {
		out = append(out, externalName(n+1))
	}
	return out
}

// proxies returns the names of all workloads with a sidecar.
func (s Shape) proxies() []string {
	out := s.clients()
	for _, svc := range s.services() {
		for _, v := range versions {
			out = append(out, instanceName(svc, v))
		}
	}
	return out
}

// Action is one step of a plan: a change of an object, or a fault.
type Action struct {
	At   time.Duration `json:"at_ns"` // since the plan's start
	What string        `json:"what"`  // write, or the name of a fault
	// Target is the object ("route/s1") or the part of the mesh ("plane/1", "envoy/c2") that it concerns.
	Target string        `json:"target"`
	State  string        `json:"state,omitempty"`  // of the object from now on
	For    time.Duration `json:"for_ns,omitempty"` // how long a fault lasts
	Count  int           `json:"count,omitempty"`  // objects of a burst
}

// String describes the action.
func (a Action) String() string {
	s := a.What + " " + a.Target
	if a.State != "" {
		s += " " + a.State
	}
	if a.Count > 0 {
		s += fmt.Sprintf(" %d objects", a.Count)
	}
	if a.For > 0 {
		s += " for " + a.For.String()
	}
	return s
}

// What actions do.
const (
	write        = "write"
	burst        = "burst" // many objects that no request depends on, at once
	killPlane    = "kill control plane"
	stopPlane    = "stop control plane"
	restartPlane = "restart control plane"
	upgradePlane = "upgrade control plane" // and roll it back
	killServer   = "kill API server"
	stopServer   = "stop API server"
	cutServer    = "cut off API server"             // from one control plane
	slowServer   = "slow API server"                // for one control plane, with lost packets: its watches lag
	resetServer  = "reset API server's connections" // of one control plane: its watches end
	killAgent    = "kill agent"
	stopAgent    = "stop agent"
	killEnvoy    = "kill Envoy"
	stopEnvoy    = "stop Envoy"
	cutProxy     = "cut off proxy"      // from all control planes
	slowProxy    = "slow proxy"         // its connection to the control plane
	lossyProxy   = "lossy proxy"        // the same, by lost packets
	unplugProxy  = "disconnect proxy"   // from all control planes; connections are reset
	expireProxy  = "expire certificate" // while the CA is away
	resetProxy   = "reset proxy's connections"
	resetAll     = "reset all connections"
	rotateRoots  = "rotate roots" // of the mesh, in three steps
)

// faultKind is how often a fault is chosen, what it concerns, and how long it lasts.
type faultKind struct {
	what     string
	weight   int
	target   func(r *rand.Rand, s Shape) string
	from, to time.Duration
	// settle is how long its target gets no further fault after its end.
	settle    time.Duration
	apiServer bool // only with an API server
	// before is how long the fault may take until its effect begins. It needs a plan of at least six times that.
	before time.Duration
}

func planeTarget(r *rand.Rand, _ Shape) string { return fmt.Sprintf("plane/%d", 1+r.IntN(planes)) }

func proxyTarget(r *rand.Rand, s Shape) string { return "proxy/" + pick(r, s.proxies()) }

// clientTarget chooses a client every second time: only their configuration has routes.
func clientTarget(r *rand.Rand, s Shape) string {
	if r.IntN(2) == 0 {
		return "proxy/" + pick(r, s.clients())
	}
	return proxyTarget(r, s)
}

func serverTarget(*rand.Rand, Shape) string { return "server" }

func everyTarget(*rand.Rand, Shape) string { return "all" }

func rootsTarget(*rand.Rand, Shape) string { return "roots" }

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// planes is the number of control planes.
const planes = 2

// certTTL is the lifetime of the sidecars' certificates. It is the shortest that agents request.
const certTTL = time.Minute

// rotationTime is how long a rotation of roots takes at most without other faults: each sidecar renews its certificate once in
// each of the three steps.
const rotationTime = 3*certTTL/2 + 30*time.Second

var faultKinds = []faultKind{
	{what: killPlane, weight: 5, target: planeTarget, from: time.Second, to: 6 * time.Second, settle: 4 * time.Second},
	{what: stopPlane, weight: 4, target: planeTarget, from: time.Second, to: 8 * time.Second, settle: 3 * time.Second},
	{what: restartPlane, weight: 3, target: planeTarget, settle: 5 * time.Second},
	{what: upgradePlane, weight: 3, target: planeTarget, from: 2 * time.Second, to: 10 * time.Second, settle: 5 * time.Second},
	{what: killServer, weight: 3, target: serverTarget, from: time.Second, to: 4 * time.Second, settle: 12 * time.Second, apiServer: true},
	{what: stopServer, weight: 3, target: serverTarget, from: time.Second, to: 6 * time.Second, settle: 4 * time.Second, apiServer: true},
	{what: cutServer, weight: 3, target: planeTarget, from: time.Second, to: 8 * time.Second, settle: 3 * time.Second, apiServer: true},
	{what: slowServer, weight: 2, target: planeTarget, from: 2 * time.Second, to: 10 * time.Second, settle: 2 * time.Second, apiServer: true},
	{what: resetServer, weight: 2, target: planeTarget, settle: 2 * time.Second, apiServer: true},
	{what: killAgent, weight: 2, target: proxyTarget, settle: 12 * time.Second},
	{what: stopAgent, weight: 2, target: proxyTarget, from: time.Second, to: 5 * time.Second, settle: 3 * time.Second},
	{what: killEnvoy, weight: 2, target: proxyTarget, settle: 12 * time.Second},
	{what: stopEnvoy, weight: 2, target: proxyTarget, from: time.Second, to: 4 * time.Second, settle: 5 * time.Second},
	{what: cutProxy, weight: 5, target: proxyTarget, from: time.Second, to: 10 * time.Second, settle: 2 * time.Second},
	{what: slowProxy, weight: 5, target: clientTarget, from: 2 * time.Second, to: 10 * time.Second, settle: time.Second},
	{what: lossyProxy, weight: 3, target: clientTarget, from: 2 * time.Second, to: 10 * time.Second, settle: time.Second},
	{what: unplugProxy, weight: 5, target: clientTarget, from: time.Second, to: 8 * time.Second, settle: 3 * time.Second},
	{what: expireProxy, weight: 2, target: clientTarget, from: 2 * time.Second, to: 6 * time.Second, settle: 5 * time.Second, before: certTTL},
	{what: resetProxy, weight: 4, target: proxyTarget, settle: time.Second},
	{what: resetAll, weight: 2, target: everyTarget, settle: 3 * time.Second},
	{what: rotateRoots, weight: 1, target: rootsTarget, settle: 10 * time.Second, before: rotationTime},
}

// objects are what a plan changes, with their first states. Every state is one of states.
func (s Shape) objects() map[string]string {
	out := map[string]string{}
	for _, svc := range s.services() {
		out["route/"+svc], out["auth/"+svc], out["mtls/"+svc] = none, none, strict
		out["endpoints/"+svc] = "v1,v2"
	}
	for _, e := range s.externals() {
		out["entry/"+e] = "a"
	}
	out["refusal/r1"] = none
	return out
}

// nextState chooses a state of an object that differs from the present one, if there are others.
func (s Shape) nextState(r *rand.Rand, object, now string) string {
	kind, _, _ := strings.Cut(object, "/")
	var from []string
	switch kind {
	case "route":
		from = []string{none, "v1", "v2", "v1", "v2", split, abort, invalid}
	case "auth":
		from = []string{none, none, "deny:" + pick(r, s.clients()), "deny:" + pick(r, s.clients()), "allow:" + pick(r, s.clients())}
	case "mtls":
		from = []string{strict, permissive, none}
	case "endpoints":
		from = []string{"v1,v2", "v1,v2", "v1", "v2"}
	case "refusal":
		from = []string{none, unacceptable}
	case "entry":
		from = []string{"a", "b", none}
	}
	for {
		if next := pick(r, from); next != now {
			return next
		}
	}
}

// Times of a plan: the mean between changes and between faults, and the part of it in which faults begin.
const (
	changeEvery = 600 * time.Millisecond
	faultEvery  = 3500 * time.Millisecond
	burstEvery  = 15 * time.Second
	faultsUntil = 0.85
)

// NewPlan returns the actions of a run, in order. It depends on its arguments alone.
func NewPlan(seed uint64, s Shape, length time.Duration) []Action {
	out := changes(rand.New(rand.NewPCG(seed, 1)), s, length)               //nolint:gosec // a repeatable choice
	out = append(out, bursts(rand.New(rand.NewPCG(seed, 2)), length)...)    //nolint:gosec // as above
	out = append(out, faults(rand.New(rand.NewPCG(seed, 3)), s, length)...) //nolint:gosec // as above
	slices.SortStableFunc(out, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
	return out
}

// gap returns a time with this mean.
func gap(r *rand.Rand, mean time.Duration) time.Duration {
	return max(time.Millisecond, time.Duration(r.ExpFloat64()*float64(mean))).Round(time.Millisecond)
}

func changes(r *rand.Rand, s Shape, length time.Duration) (out []Action) {
	now := s.objects()
	names := make([]string, 0, len(now))
	for name := range now {
		names = append(names, name)
	}
	slices.Sort(names)
	for at := gap(r, changeEvery); at < length; at += gap(r, changeEvery) {
		object := pick(r, names)
		now[object] = s.nextState(r, object, now[object])
		out = append(out, Action{At: at, What: write, Target: object, State: now[object]})
	}
	return out
}

func bursts(r *rand.Rand, length time.Duration) (out []Action) {
	for at := gap(r, burstEvery); at < time.Duration(faultsUntil*float64(length)); at += gap(r, burstEvery) {
		out = append(out, Action{At: at, What: burst, Target: fmt.Sprintf("noise/%d", r.IntN(3)), State: pick(r, []string{"written", "written", brief, none}), Count: 20 + r.IntN(180)})
	}
	return out
}

func faults(r *rand.Rand, s Shape, length time.Duration) (out []Action) {
	var weights []faultKind
	for _, k := range faultKinds {
		for range k.weight {
			if (s.APIServer || !k.apiServer) && 6*k.before <= length {
				weights = append(weights, k)
			}
		}
	}
	end := time.Duration(faultsUntil * float64(length))
	free := map[string]time.Duration{}
	for at := gap(r, faultEvery); at < end; at += gap(r, faultEvery) {
		k := pick(r, weights)
		a := Action{At: at, What: k.what, Target: k.target(r, s)}
		if k.to > 0 {
			a.For = min(k.from+time.Duration(r.Int64N(int64(k.to-k.from))), end-at).Round(time.Millisecond)
		}
		if at < free[a.Target] || at+k.before+a.For > end {
			continue // its target has not recovered from the last one, or the plan ends too soon
		}
		free[a.Target] = at + k.before + a.For + k.settle
		out = append(out, a)
	}
	return out
}
