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

// Board knows what is wrong with each object, and whose status should differ. It is the
// Kubernetes source's Observer. All methods may be called by many goroutines.
type Board struct {
	wake chan struct{} // has room for one: something was queued

	mu      sync.Mutex // guards all below
	objects map[model.Key]*object
	queue   []model.Key // of objects that are queued, each once, here or in aside
	aside   map[schema.GroupVersionResource][]model.Key
	// gatewayObject counts what was seen of the Gateway API's objects.
	gatewayObject int
}

// object is what is known of one.
type object struct {
	seen   kube.Seen // its Status is in have
	have   written
	queued bool
	// judged is what the status of one of the Gateway API's should say; nil: nobody has said.
	judged *judgement
	across problem.List
	refuse *refusal
	given  *given // of a ServiceEntry; nil: its status need not tell any addresses
	// accepted: proxies have taken what they refused before, or what it became.
	accepted bool
	judges   func(model.Key) bool // with the board's mu held
}

// NewBoard makes an empty one.
func NewBoard() *Board {
	return &Board{wake: make(chan struct{}, 1), objects: map[model.Key]*object{}, aside: map[schema.GroupVersionResource][]model.Key{}}
}

// Seen implements kube.Observer.
func (b *Board) Seen(s *kube.Seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.objects[s.Key]
	if o == nil {
		o = &object{seen: kube.Seen{Key: s.Key}, judges: b.judges}
		b.objects[s.Key] = o
	}
	o.see(s.Version, s.Generation, s.Status)
	o.seen.Resource, o.seen.Problems, o.seen.InForce, o.seen.Partial = s.Resource, s.Problems, s.InForce, s.Partial
	if o.seen.Outline != nil || s.Outline != nil {
		b.gatewayObject++
	}
	o.seen.Outline = s.Outline
	b.review(s.Key, o)
}

// judges tells whether a Gateway's status is written here; mu is held.
func (b *Board) judges(k model.Key) bool {
	o := b.objects[k]
	return o != nil && o.seen.Outline != nil
}

// see takes what the API server has of an object.
func (o *object) see(version string, generation int64, status json.RawMessage) {
	if o.seen.Generation != generation {
		o.accepted = false
	}
	o.seen.Version, o.seen.Generation = version, generation
	if gatewayapi.HasRefs(o.seen.Key.Kind) {
		o.have = parseGatewayStatus(status)
	} else {
		have := parse(status)
		o.have = &have
	}
}

// Gone implements kube.Observer.
func (b *Board) Gone(k model.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o := b.objects[k]; o != nil {
		if o.queued {
			b.unqueue(k)
		}
		if o.seen.Outline != nil {
			b.gatewayObject++
		}
	}
	delete(b.objects, k)
}

// written is a status as it stands, of Istio's form or the Gateway API's.
type written interface {
	// refused tells whether it says that proxies refuse the object, and generation of which generation.
	refused() bool
	generation() int64
	// plan is what should be written in its place; nil: it is to stay as it is.
	plan(*object) patcher
}

// patcher makes a merge patch of a status, for one version of the object alone.
type patcher func(now time.Time) ([]byte, error)

// plan implements written.
func (c *current) plan(o *object) patcher {
	f := facts{o.seen.Problems, o.seen.InForce, o.seen.Partial, o.across, o.refuse}
	v := f.judge()
	stays := c.says(&v, o.seen.Generation) || v.ok && c.refused() && !o.accepted
	lacks := c.lacks(o.given)
	if stays && !lacks {
		return nil
	}
	version, generation, given := o.seen.Version, o.seen.Generation, o.given
	return func(now time.Time) ([]byte, error) {
		status := map[string]any{}
		if !stays {
			c.judged(status, &v, generation, now)
		}
		if lacks {
			status["addresses"] = given.want
		}
		return json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "status": status})
	}
}

// update is one write of a status.
type update struct {
	key        model.Key
	resource   schema.GroupVersionResource
	version    string // of the object that it is for
	generation int64
	patch      []byte
}

// live is what the API server has of an object, where it was asked.
type live struct {
	version    string
	generation int64
	status     json.RawMessage
}

// update is what to write for an object now; nil: nothing.
func (b *Board) update(k model.Key, now time.Time) (*update, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.objects[k]
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

// found takes what the API server has, ahead of its event; false where that is another
// generation, whose event is on the way.
func (b *Board) found(k model.Key, l *live) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.objects[k]
	if o == nil || o.seen.Generation != l.generation {
		return false
	}
	o.see(l.version, l.generation, l.status)
	return true
}
