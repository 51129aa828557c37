package ledger

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// run is a random history of one proxy: it is bound in turn to two outbound worlds, and to an
// inbound one, over a network that delays and breaks.
type run struct {
	t        *testing.T
	seed     uint64
	r        *rand.Rand
	rev      model.Revision
	outbound [2]*world
	inbound  *world
	bound    int

	pool     *names.Pool
	strategy *Strategy
	sotw     *translator // nil: delta
	ledger   *Ledger
	envoy    *envoy
	wire     []Response          // responses that the proxy has not read
	leave    map[uint64][]string // by nonce, removed route configurations of which the response removes virtual hosts
	log      []string
	// unsafe: a state-of-the-world proxy connected again. It cannot list what it has, so the first
	// responses may remove what it still uses.
	unsafe bool
}

func newRun(t *testing.T, seed uint64, strategy *Strategy, bad bool, sotw *translator) *run {
	r := rand.New(rand.NewPCG(seed, 99))
	x := &run{t: t, seed: seed, r: r, pool: names.NewPool(), strategy: strategy, sotw: sotw, envoy: newEnvoy(r, strategy.VirtualHosts)}
	x.envoy.late = sotw == nil && r.IntN(3) == 0
	x.envoy.sotw = sotw
	x.outbound = [2]*world{newWorld(r, "a", bad), newWorld(r, "b", bad)}
	for _, w := range x.outbound { // others are sharded later
		w.split = strategy.Scopes && r.IntN(2) == 0
	}
	x.inbound = newWorld(r, "in", false)
	for i, w := range x.outbound {
		w.set(resource.Cluster, "PassthroughCluster", content{})
		w.has[resource.Cluster]["PassthroughCluster"] = content{n: i}
		for range 20 {
			w.event()
		}
		x.commit(w)
	}
	x.inbound.set(resource.Cluster, "inbound|8080||", content{})
	x.inbound.set(resource.Listener, "virtualInbound", content{refs: []string{"inbound|8080||"}})
	x.commit(x.inbound)
	x.connect()
	return x
}

func (x *run) commit(w *world) {
	x.rev++
	w.commit(x.rev)
}

func (x *run) states() []*table.State {
	return []*table.State{x.outbound[x.bound].table.State(), x.inbound.table.State()}
}

func (x *run) connect() {
	protocol := Delta
	if x.sotw != nil {
		protocol = Sotw
		x.sotw.connect()
	}
	x.ledger = New(protocol, x.strategy, x.pool, x.states())
	x.wire, x.leave = nil, map[uint64][]string{}
	x.envoy.connect()
}

func (x *run) note(format string, args ...any) {
	x.log = append(x.log, fmt.Sprintf(format, args...))
}

func (x *run) next() {
	for _, r := range x.ledger.Next(nil) {
		x.note("send %s", describe(r))
		for _, n := range r.Removed {
			rc := table.RouteConfigOf(n)
			if r.Type == resource.VirtualHost && x.ledger.lookup(x.strategy.Routes, rc) == nil && !strings.HasSuffix(n, "/none") {
				x.leave[r.Nonce] = append(x.leave[r.Nonce], rc)
			}
		}
		x.wire = append(x.wire, r)
	}
	require.NoError(x.t, x.ledger.Err())
}

// step does one random thing.
func (x *run) step() {
	switch n := x.r.IntN(100); {
	case n < 40 && len(x.envoy.out) > 0:
		x.deliver()
	case n < 80 && len(x.wire) > 0:
		x.receive()
	case n < 82:
		x.envoy.resolve()
	case n < 84:
		x.note("late")
		x.ledger.Overdue(resource.Cluster)
		x.next()
	case n < 94:
		w := x.outbound[x.r.IntN(2)]
		if x.r.IntN(10) == 0 {
			w = x.inbound
			w.set(resource.Listener, "virtualInbound", content{refs: []string{"inbound|8080||"}})
		} else {
			w.split = w.split || x.strategy.Scopes && x.r.IntN(40) == 0
			for range 1 + x.r.IntN(3) {
				w.event()
			}
		}
		x.commit(w)
		x.note("commit %d to %s", x.rev, w.table.Name())
		x.ledger.Update(x.states())
		x.next()
	case n < 97:
		if _, asks := x.outbound[x.bound].has[resource.Listener][routeshard.Listener]; asks { // a proxy keeps this listener when it is bound to other tables
			x.outbound[1-x.bound].askForScopes()
			x.commit(x.outbound[1-x.bound])
		}
		x.bound = 1 - x.bound
		x.note("rebind to %s", x.outbound[x.bound].table.Name())
		x.ledger.Update(x.states())
		x.next()
	case n < 99:
		x.envoy.look()
	default:
		x.note("reconnect")
		x.unsafe = x.sotw != nil
		x.connect()
	}
}

func (x *run) deliver() {
	for {
		r := x.envoy.out[0]
		x.envoy.out = x.envoy.out[1:]
		x.note("request %s", describeRequest(r))
		x.ledger.Handle(&r)
		if len(x.envoy.out) == 0 || x.r.IntN(3) > 0 {
			break // otherwise the next request arrived together with it
		}
	}
	x.next()
}

func (x *run) receive() {
	r := x.wire[0]
	x.wire = x.wire[1:]
	x.note("receive %s %d", r.Type, r.Nonce)
	if x.sotw != nil {
		r = x.sotw.response(x.envoy, r)
	}
	if x.strategy.Scopes && !x.outbound[0].bad {
		for _, rc := range x.leave[r.Nonce] {
			if x.envoy.uses(rc) {
				x.fail("virtual hosts of " + rc + " go while a listener uses them")
			}
		}
	}
	x.envoy.take(r)
	if len(x.wire) == 0 || r.Type == resource.Endpoints {
		x.envoy.look()
	}
	x.envoy.startListeners()
	if err := x.envoy.unserved(); err != nil && x.strategy.Scopes && !x.outbound[0].bad {
		x.fail(err.Error())
	}
	if err := x.envoy.dangling(); err != nil && !x.unsafe {
		x.fail(err.Error())
	}
}

// busy reports whether messages are under way, or will be when the proxy has time.
func (x *run) busy() bool {
	if len(x.wire)+len(x.envoy.out) == 0 {
		x.envoy.look()
		x.envoy.resolve()
	}
	return len(x.wire)+len(x.envoy.out) > 0
}

// calm delivers all messages.
func (x *run) calm() {
	for i := 0; x.busy(); i++ {
		if i > 10_000 {
			x.fail("it never becomes quiet")
		}
		if len(x.envoy.out) > 0 {
			x.deliver()
		} else {
			x.receive()
		}
	}
	if x.ledger.reconnecting || x.ledger.scopes.mustBeRequested() { // Envoy without routes, or that refuses the listener: the server's watchdog ends the wait
		x.ledger.StopWaiting()
		x.next()
		x.calm()
	}
}

func (x *run) fail(why string) {
	if os.Getenv("LEDGER_LOG") != "" { // to find the cause
		for _, l := range x.log {
			x.t.Log(l)
		}
		for k := range kinds {
			x.t.Logf("%d %+v", k, x.ledger.watches[k])
		}
		x.t.Logf("scopes %+v, sent %t", x.ledger.scopes, x.ledger.scopes.allSent())
		for _, s := range x.states() {
			for e := range s.All(x.strategy.Routes) {
				x.t.Logf("%s sent %t", e.Name, x.ledger.scopes.routesSent(e.Name))
			}
		}
	}
	x.t.Helper()
	x.t.Fatalf("seed %d: %s", x.seed, why)
}

// seeds returns the number of histories. LEDGER_SEEDS sets it, to find rare failures. With -short,
// for the race detector, there are fewer.
func seeds() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("LEDGER_SEEDS"), 10, 64); err == nil {
		return n
	}
	if testing.Short() {
		return 10
	}
	return 100
}

// TestEveryProxyConverges: after any history, a proxy has what the tables have, and its routes
// never refer to a cluster that it lacks.
func TestEveryProxyConverges(t *testing.T) {
	for _, s := range []*Strategy{WholeRoutes, VirtualHosts, ScopedRoutes} {
		for _, bad := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,bad=%t", s.Name, bad), func(t *testing.T) {
				for seed := range seeds() {
					newRun(t, seed, s, bad, nil).live()
				}
			})
		}
	}
}
