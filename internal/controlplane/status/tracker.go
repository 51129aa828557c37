package status

import (
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// Tracker has the problems of each object, and the objects whose status should differ. It is the Kubernetes
// source's Observer. Its methods may be called by many goroutines.
type Tracker struct {
	wake chan struct{} // capacity one: an object was queued

	mu        sync.Mutex // guards the fields below
	objects   map[model.Key]*object
	queue     []model.Key // keys of queued objects, each once, here or in suspended
	suspended map[schema.GroupVersionResource][]model.Key
	// gatewayObject counts changes of Gateway API objects and of deployments.
	gatewayObject int
	// deployments are those of the Gateways about which the deploying part has decided; nil: a Gateway has none.
	deployments map[model.Key]*Deployment
	deciding    bool // Gateways that are not among deployments get no status yet
}

// object has the facts about one object.
type object struct {
	seen   kube.Seen // its Status is in have
	have   written
	queued bool
	// judged is what the status of a Gateway API object should be; nil: not computed yet.
	judged      *judgement
	crossChecks problem.List
	refuse      *refusal
	assigned    *assigned // addresses of a ServiceEntry; nil: its status needs none
	balancer    []string  // addresses of an Ingress of the mesh; nil: it is of another controller
	// accepted is set if proxies accepted the object after they had refused it or an earlier form of it.
	accepted       bool
	writesStatusOf func(model.Key) bool // called with the Tracker's mu held
}

// NewTracker returns an empty Tracker.
func NewTracker() *Tracker {
	return &Tracker{wake: make(chan struct{}, 1), objects: map[model.Key]*object{}, deployments: map[model.Key]*Deployment{}, suspended: map[schema.GroupVersionResource][]model.Key{}}
}

// Seen implements kube.Observer.
func (t *Tracker) Seen(s *kube.Seen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.objects[s.Key]
	if o == nil {
		o = &object{seen: kube.Seen{Key: s.Key}, writesStatusOf: t.writesStatusOf}
		t.objects[s.Key] = o
	}
	o.see(s.Version, s.Generation, s.Status)
	o.seen.Resource, o.seen.Problems, o.seen.InForce, o.seen.Salvaged = s.Resource, s.Problems, s.InForce, s.Salvaged
	if o.seen.GatewayRefs != nil || s.GatewayRefs != nil {
		t.gatewayObject++
	}
	o.seen.GatewayRefs = s.GatewayRefs
	t.review(s.Key, o)
}

// writesStatusOf reports whether this control plane writes the status of a Gateway or ListenerSet. The caller holds mu.
func (t *Tracker) writesStatusOf(k model.Key) bool {
	o := t.objects[k]
	if o == nil || o.seen.GatewayRefs == nil {
		return false
	}
	g := o.seen.GatewayRefs.Gateway
	return g == nil || g.Parent.Name == "" || t.writesStatusOf(g.Parent)
}

// see takes the form of an object on the API server.
func (o *object) see(version string, generation int64, status json.RawMessage) {
	if o.seen.Generation != generation {
		o.accepted = false
	}
	o.seen.Version, o.seen.Generation = version, generation
	switch {
	case o.seen.Key.Kind == model.KindIngress:
		o.have = parseIngressStatus(status)
	case gatewayapi.HasRefs(o.seen.Key.Kind):
		o.have = parseGatewayStatus(status)
	default:
		have := parse(status)
		o.have = &have
	}
}

// Gone implements kube.Observer.
func (t *Tracker) Gone(k model.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.objects[k]; o != nil {
		if o.queued {
			t.unqueue(k)
		}
		if o.seen.GatewayRefs != nil {
			t.gatewayObject++
		}
	}
	delete(t.objects, k)
	delete(t.deployments, k)
}

// written is a current status, in Istio's form or the Gateway API's.
type written interface {
	// refused reports whether the status has a refusal by proxies, and generation returns the generation
	// that it is about.
	refused() bool
	generation() int64
	// plan returns what should be written; nil: nothing.
	plan(*object) patcher
}

// patcher makes a merge patch of a status, which is for one version of the object only.
type patcher func(now time.Time) ([]byte, error)

// plan implements written.
func (c *current) plan(o *object) patcher {
	f := facts{o.seen.Problems, o.seen.InForce, o.seen.Salvaged, o.crossChecks, o.refuse}
	v := f.judge()
	stays := c.isUpToDate(&v, o.seen.Generation) || v.ok && c.refused() && !o.accepted
	lacks := c.lacks(o.assigned)
	if stays && !lacks {
		return nil
	}
	version, generation, assigned := o.seen.Version, o.seen.Generation, o.assigned
	return func(now time.Time) ([]byte, error) {
		status := map[string]any{}
		if !stays {
			c.judged(status, &v, generation, now)
		}
		if lacks {
			status["addresses"] = assigned.want
		}
		return json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "status": status})
	}
}

// update is one write of a status.
type update struct {
	key        model.Key
	resource   schema.GroupVersionResource
	version    string // generation of the object
	generation int64
	patch      []byte
}

// live is the form of an object on the API server, read on demand.
type live struct {
	version    string
	generation int64
	status     json.RawMessage
}

// update returns what to write for an object now; nil: nothing.
func (t *Tracker) update(k model.Key, now time.Time) (*update, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.objects[k]
	if o == nil {
		return nil, nil
	}
	plan := o.have.plan(o)
	if plan == nil {
		return nil, nil
	}
	patch, err := plan(now)
	return &update{k, o.seen.Resource, o.seen.Version, o.seen.Generation, patch}, err
}

// found takes the form of an object on the API server, before its event. It returns false for another
// generation, whose event is still to come.
func (t *Tracker) found(k model.Key, l *live) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.objects[k]
	if o == nil || o.seen.Generation != l.generation {
		return false
	}
	o.see(l.version, l.generation, l.status)
	return true
}
