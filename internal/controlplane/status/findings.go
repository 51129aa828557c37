package status

import (
	"reflect"
	"slices"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// setAcross replaces the problems between objects, for all objects.
func (b *Board) setAcross(all map[model.Key]problem.List) {
	b.each(func(k model.Key, o *object) bool {
		was := o.across
		o.across = all[k]
		return !slices.Equal(was, o.across)
	})
}

// each applies take to each object, and reviews those for which it returns true: their findings changed.
func (b *Board) each(take func(model.Key, *object) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, o := range b.objects {
		if take(k, o) {
			b.review(k, o)
		}
	}
}

// gatewayObjects returns the objects of the Gateway API. count changes when they may have changed.
func (b *Board) gatewayObjects() (all map[model.Key]gatewayObject, count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all = map[model.Key]gatewayObject{}
	for k, o := range b.objects {
		if o.seen.GatewayRefs != nil {
			all[k] = gatewayObject{o.seen.GatewayRefs, o.seen.Generation, o.seen.Problems, o.seen.Salvaged, b.deployments[k]}
		}
	}
	return all, b.gatewayObject
}

// gatewayObjectsSeen returns the count of gatewayObjects.
func (b *Board) gatewayObjectsSeen() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gatewayObject
}

// setJudged sets what the statuses of all Gateway API objects should be.
func (b *Board) setJudged(all map[model.Key]*judgement) {
	b.each(func(k model.Key, o *object) bool {
		was := o.judged
		o.judged = all[k]
		return !reflect.DeepEqual(was, o.judged)
	})
}

// setRefused sets everything that proxies refuse.
func (b *Board) setRefused(all map[model.Key]refusal) {
	b.each(func(k model.Key, o *object) bool {
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
func (b *Board) doubtful() []doubtful {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []doubtful
	for k, o := range b.objects {
		if o.refuse == nil && !o.accepted && o.have.refused() {
			out = append(out, doubtful{k, o.have.generation() != o.seen.Generation})
		}
	}
	return out
}

// accept records that an object is accepted.
func (b *Board) accept(k model.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o := b.objects[k]; o != nil && o.refuse == nil {
		o.accepted = true
		b.review(k, o)
	}
}
