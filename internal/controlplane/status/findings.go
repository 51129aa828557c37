package status

import (
	"reflect"
	"slices"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// setCrossChecks replaces the problems between objects, for all objects.
func (t *Tracker) setCrossChecks(all map[model.Key]problem.List) {
	t.each(func(k model.Key, o *object) bool {
		was := o.crossChecks
		o.crossChecks = all[k]
		return !slices.Equal(was, o.crossChecks)
	})
}

// each applies take to each object, and reviews those for which it returns true: their findings changed.
func (t *Tracker) each(take func(model.Key, *object) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, o := range t.objects {
		if take(k, o) {
			t.review(k, o)
		}
	}
}

// gatewayObjects returns the objects of the Gateway API. count changes when they may have changed.
func (t *Tracker) gatewayObjects() (all map[model.Key]gatewayObject, count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = map[model.Key]gatewayObject{}
	for k, o := range t.objects {
		if o.seen.GatewayRefs != nil {
			d, decided := t.deployments[k]
			all[k] = gatewayObject{
				Refs: o.seen.GatewayRefs, generation: o.seen.Generation, problems: o.seen.Problems,
				inForce: o.seen.InForce, partial: o.seen.Salvaged,
				deployment: d, undecided: t.deciding && !decided && k.Kind == model.KindKubernetesGateway,
			}
		}
	}
	return all, t.gatewayObject
}

// gatewayObjectsSeen returns the count of gatewayObjects.
func (t *Tracker) gatewayObjectsSeen() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gatewayObject
}

// setJudged sets what the statuses of all Gateway API objects should be.
func (t *Tracker) setJudged(all map[model.Key]*judgement) {
	t.each(func(k model.Key, o *object) bool {
		was := o.judged
		o.judged = all[k]
		return !reflect.DeepEqual(was, o.judged)
	})
}

// setRefused sets everything that proxies refuse.
func (t *Tracker) setRefused(all map[model.Key]refusal) {
	t.each(func(k model.Key, o *object) bool {
		now, is := all[k]
		switch {
		case !is && o.refuse == nil, is && o.refuse != nil && *o.refuse == now:
			return false
		case is:
			o.refuse, o.accepted = &now, false
		default:
			o.refuse = nil
		}
		return true
	})
}

// doubtful is an object that proxies refused and do not refuse now.
type doubtful struct {
	key     model.Key
	changed bool // since its status was written
}

// doubtful lists the objects for which it must be found out whether proxies accept them.
func (t *Tracker) doubtful() []doubtful {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []doubtful
	for k, o := range t.objects {
		if o.refuse == nil && !o.accepted && o.have.refused() {
			out = append(out, doubtful{k, o.have.generation() != o.seen.Generation})
		}
	}
	return out
}

// accept records that an object is accepted.
func (t *Tracker) accept(k model.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.objects[k]; o != nil && o.refuse == nil {
		o.accepted = true
		t.review(k, o)
	}
}
