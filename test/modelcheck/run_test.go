package modelcheck

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/fetch"
	"github.com/moonsail/moonsail/test/randommesh"
)

// counts are what runs did.
type counts struct{ events, messages, resources, nacks, connects, restarts, calms, comparisons int }

func (c *counts) add(o counts) {
	c.events, c.messages, c.resources, c.nacks = c.events+o.events, c.messages+o.messages, c.resources+o.resources, c.nacks+o.nacks
	c.connects, c.restarts, c.calms, c.comparisons = c.connects+o.connects, c.restarts+o.restarts, c.calms+o.calms, c.comparisons+o.comparisons
}

// client is an Envoy and its stream.
type client struct {
	id    string
	node  *corev3.Node
	envoy *envoy
	on    *stream // nil: it is not connected
	// unsafe: it uses state of the world and has connected again. It cannot list what it has, so the first responses may
	// remove what it still uses.
	unsafe bool
	// guarded are the policies that each listener enforced in its last version: they must stay while they exist.
	guarded map[string][]string
	// excused are the references to clusters which it lacks as the tables lacked them.
	excused map[reference]bool
	// patient: since the last check it refused something, or connected again without routes. The server may then wait for it
	// until a timer.
	patient bool
}

// run is one run of a plan.
type run struct {
	plan    *plan
	flags   randommesh.World
	truth   *truth
	plane   *plane
	clients []*client
	version int
	last    *store.Event
	held    map[model.Kind][]store.Event // events that a lagging watch has not delivered
	counts  counts
}

// violation is an invariant that does not hold.
type violation struct {
	at  int // the operation
	err error
}

func (v *violation) Error() string { return fmt.Sprintf("operation %d: %v", v.at, v.err) }

func (v *violation) Unwrap() error { return v.err }

// execute runs a plan in a bubble of synctest.
func execute(p *plan) (counts, error) {
	x := &run{plan: p, truth: newTruth(), held: map[model.Kind][]store.Event{}}
	x.flags = *randommesh.New(p.seed, 1)
	x.plane = startPlane(nil, x.sharding())
	defer func() { x.plane.stop() }()
	defer x.disconnectAll()
	if err := x.addClients(); err != nil {
		return x.counts, err
	}
	for i, o := range p.ops {
		err := x.do(o)
		if !o.rush && err == nil {
			synctest.Wait()
			if o.seed%8 == 0 { // seldom, as the question wakes streams
				err = x.checkClaims()
			}
		}
		if err != nil {
			return x.counts, &violation{i, err}
		}
	}
	return x.counts, nil
}

func (x *run) sharding() derive.Sharding {
	if x.plan.sharding {
		return derive.Sharding{From: 3, Bits: 3}
	}
	return derive.Sharding{From: 1 << 30, Bits: 3}
}

// world returns the maker of random objects for an operation.
func (x *run) world(seed uint64) *randommesh.World {
	w := x.flags
	w.Rand = rand.New(rand.NewPCG(seed, 7))
	return &w
}

func (x *run) addClients() error {
	w := x.world(x.plan.seed)
	for i := range clients {
		p := w.Proxy()
		if len(p.IPs) == 0 {
			p.IPs = []string{"10.1.0.8"}
		}
		p.Name = fmt.Sprintf("%s-%d", p.Name, i)
		node, err := fetch.Node(p)
		if err != nil {
			return err
		}
		c := &client{id: node.GetId(), node: node}
		x.renew(c, x.world(uint64(i)))
		x.clients = append(x.clients, c)
	}
	return nil
}

// renew makes the Envoy of a client a new process.
func (x *run) renew(c *client, w *randommesh.World) {
	c.envoy = newEnvoy(x.plan.picky && w.Chance(0.5))
	c.envoy.sotw = w.Chance(0.25)
	c.guarded = map[string][]string{}
	c.unsafe, c.excused = false, nil
}

// do applies an operation.
func (x *run) do(o op) error {
	w, c := x.world(o.seed), x.clients[o.client]
	switch o.kind {
	case opEvents, opBurst:
		x.events(w, o.n)
	case opFlap:
		e := w.Event()
		x.put(e)
		e.Object = nil
		x.put(e)
	case opRelist:
		x.relist(w)
	case opRepeat:
		if x.last != nil {
			x.plane.intake.Put(*x.last)
		}
	case opHold:
		kind := w.Event().Key.Kind
		if _, ok := x.held[kind]; !ok {
			x.held[kind] = []store.Event{}
		}
	case opRelease:
		x.release()
	case opDeny:
		if x.plan.selective {
			return nil
		}
		p := x.truth.denyPolicy("1")
		x.put(store.Event{Key: p.Key, Object: p})
	case opAllow:
		x.allow(w)
	case opStep:
		return x.read(c, o.n)
	case opRead:
		return x.read(c, -1)
	case opDisconnect:
		x.disconnect(c)
	case opConnect:
		return x.connect(c)
	case opReplace:
		x.disconnect(c)
		x.renew(c, w)
		return x.connect(c)
	case opPass:
		time.Sleep(time.Duration(o.n) * time.Second) //nolint:forbidigo // the time is simulated
	case opRestart:
		x.restart()
	case opCalm:
		return x.calm(true)
	case opKinds:
	}
	return nil
}

// events puts random events, together or one by one.
func (x *run) events(w *randommesh.World, n int) {
	if w.Chance(0.7) {
		for range n {
			x.put(w.Event())
		}
		return
	}
	var list []store.Event
	for range n {
		list = append(list, w.Event())
	}
	x.put(list...)
}

// put delivers events of the source, in the order of each kind. Watches that lag keep theirs.
func (x *run) put(events ...store.Event) {
	var now []store.Event
	for _, e := range events {
		x.counts.events++
		if e.Object != nil {
			x.version++
			e.Object.Metadata().ResourceVersion = fmt.Sprint(x.version)
			if m, ok := e.Object.(*model.MeshConfig); ok && !x.plan.selective {
				m.Discovery = nil
			}
		}
		e.Observed = time.Now()
		if list, ok := x.held[e.Key.Kind]; ok {
			x.held[e.Key.Kind] = append(list, e)
			continue
		}
		now = append(now, e)
	}
	x.deliver(now)
}

func (x *run) deliver(events []store.Event) {
	for _, e := range events {
		if e.Object == nil {
			delete(x.truth.objects, e.Key)
		} else {
			x.truth.objects[e.Key] = e.Object
		}
		if strings.HasPrefix(e.Key.Name, "deny-") {
			x.truth.deny[e.Key.Name] = true
			if e.Object == nil {
				delete(x.truth.deny, e.Key.Name)
			}
		}
		x.last = &e
	}
	x.plane.intake.Put(events...)
}

func (x *run) release() {
	for _, k := range slices.Sorted(maps.Keys(x.held)) {
		x.deliver(x.held[k])
	}
	x.held = map[model.Kind][]store.Event{}
}

// relist delivers all objects of a kind again.
func (x *run) relist(w *randommesh.World) {
	kind := w.Event().Key.Kind
	for _, o := range sorted(x.truth.objects) {
		if o.Metadata().Kind == kind {
			x.plane.intake.Put(store.Event{Key: o.Metadata().Key, Object: o, Observed: time.Now()})
		}
	}
}

// allow deletes a policy of the model.
func (x *run) allow(w *randommesh.World) {
	if len(x.truth.deny) == 0 {
		return
	}
	name := randommesh.Pick(w, slices.Sorted(maps.Keys(x.truth.deny)))
	for _, c := range x.clients { // from now on it may be absent
		for l, list := range c.guarded {
			c.guarded[l] = slices.DeleteFunc(slices.Clone(list), func(p string) bool { return p == name })
		}
	}
	x.put(store.Event{Key: model.Key{Kind: model.KindAuthorizationPolicy, Namespace: "istio-system", Name: name}})
}

func (x *run) connect(c *client) error {
	if c.on != nil {
		return nil
	}
	s, err := dial(x.plane.listener, c.envoy.sotw)
	if err != nil {
		return err
	}
	c.on = s
	c.patient = c.patient || !c.envoy.sotw && c.envoy.started[cds] && !(c.envoy.started[rds] && c.envoy.started[vhds])
	c.unsafe = c.unsafe || c.envoy.sotw && c.envoy.started[cds]
	c.envoy.connect()
	x.counts.connects++
	return c.flush(c.node)
}

// flush sends the requests of an Envoy. The first has its node.
func (c *client) flush(node *corev3.Node) error {
	for i := range c.envoy.out {
		if c.on.send(&c.envoy.out[i], node) != nil {
			break // the stream has ended, and reading returns why
		}
		node = nil
	}
	c.envoy.out = nil
	return nil
}

func (x *run) disconnect(c *client) {
	if c.on != nil {
		c.on.close()
		c.on = nil
	}
}

func (x *run) disconnectAll() {
	for _, c := range x.clients {
		x.disconnect(c)
	}
}

// read has an Envoy process messages: at most n, or all that are there if n is negative.
func (x *run) read(c *client, n int) error {
	for ; n != 0 && c.on != nil; n-- {
		r, err := c.on.next()
		if err != nil {
			if status.Code(err) != codes.Unavailable {
				return fmt.Errorf("%s: the stream ended: %w", c.id, err)
			}
			x.disconnect(c)
			return nil
		}
		if r == nil {
			return nil
		}
		if err := x.process(c, r); err != nil {
			return fmt.Errorf("%s: %w", c.id, err)
		}
	}
	return nil
}

func (x *run) process(c *client, r *response) error {
	x.counts.messages++
	x.counts.resources += len(r.resources) + len(r.removed)
	if err := c.envoy.take(r); err != nil {
		return err
	}
	for _, q := range c.envoy.out {
		if q.refusal != "" {
			x.counts.nacks++
			c.patient = true
		}
	}
	if err := x.checkMessage(c, r); err != nil {
		return fmt.Errorf("after %s: %w", describe(r), err)
	}
	return c.flush(nil)
}

func describe(r *response) string {
	var list []string
	for _, x := range r.resources {
		list = append(list, x.name)
	}
	for _, n := range r.removed {
		list = append(list, "-"+n)
	}
	return fmt.Sprintf("%s %s %v", r.kind, r.nonce, list)
}

// restart replaces the control plane. Its source lists all objects, also those of watches that lagged.
func (x *run) restart() {
	x.counts.restarts++
	x.release()
	x.plane.stop()
	for _, c := range x.clients {
		x.disconnect(c)
	}
	x.plane = startPlane(x.truth.objects, x.sharding())
}

// calm delivers everything and checks the result.
func (x *run) calm(connect bool) error {
	x.counts.calms++
	x.release()
	for _, c := range x.clients {
		if err := x.connect(c); connect && err != nil {
			return err
		}
	}
	if err := x.settle(x.plane, x.clients); err != nil {
		return err
	}
	err := errors.Join(x.checkQuiet(), x.checkFresh())
	for _, c := range x.clients {
		c.unsafe, c.patient = c.unsafe && c.envoy.refuses(), c.envoy.refuses()
	}
	x.plane.forget()
	return err
}

// settle delivers all messages. Time passes only for Envoys that the server may wait for.
func (x *run) settle(p *plane, list []*client) error {
	waited := time.Duration(0)
	for range 10_000 {
		synctest.Wait()
		before := x.counts.messages
		for _, c := range list {
			if err := x.read(c, -1); err != nil {
				return err
			}
			if c.on == nil {
				if err := x.connect(c); err != nil {
					return err
				}
				before = -1
			}
		}
		if x.counts.messages != before {
			continue
		}
		for _, c := range list { // before the server is asked: questions wake streams
			if err := c.hasAll(p.newest(c.id)); err != nil && c.envoy.started[lds] && !c.patient {
				return fmt.Errorf("all is quiet, and %s: %w", c.id, err)
			}
		}
		id, behind := p.behind()
		if behind == "" || waited > 2*time.Minute {
			return nil
		}
		if !slices.ContainsFunc(list, func(c *client) bool { return c.patient && c.id == id }) {
			return fmt.Errorf("all is quiet, and %s", behind)
		}
		time.Sleep(time.Second) //nolint:forbidigo // the time is simulated
		waited += time.Second
	}
	return errors.New("it never becomes quiet")
}
