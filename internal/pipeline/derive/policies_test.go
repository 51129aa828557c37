package derive

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// selecting is an object of no real kind that selects workloads.
type selecting struct {
	model.Meta
	model.Targets
	labels   map[string]string
	outbound bool
}

func (s *selecting) SelectorLabels() map[string]string { return s.labels }
func (s *selecting) ShapesOutbound() bool              { return s.outbound }

func randomSelecting(w *world, kind model.Kind) *selecting {
	s := &selecting{Meta: w.meta(kind), outbound: w.chance(0.5)}
	s.Created = time.Unix(int64(w.IntN(3)), 0)
	if w.chance(0.3) {
		s.Targets = model.Targets{Targeted: true, Gateways: pick(w, [][]string{nil, worldVersions, {"v1"}, {"v2"}})}
		return s
	}
	for _, k := range []string{"app", "version"} {
		if w.chance(0.5) {
			if s.labels == nil {
				s.labels = map[string]string{}
			}
			s.labels[k] = pick(w, worldVersions)
		}
	}
	return s
}

// TestPoliciesAreThoseThatSelect compares the index with a search through all objects, and
// what a change touches with what differs by it.
func TestPoliciesAreThoseThatSelect(t *testing.T) {
	const kind model.Kind = "Test"
	w := &world{Rand: rand.New(rand.NewPCG(1, 2))}
	d := New(model.DefaultMesh(), 1)
	all := map[model.Key]*selecting{}
	ask := func(ns string, labels map[string]string) ([]*selecting, factList) {
		r := newReader(d.index, nil)
		return policies[*selecting](r, kind, ns, labels), r.facts
	}
	labels := map[string]string{"app": "v1", "version": "v2", "other": "x", model.LabelGatewayName: "v1"}
	for range 500 {
		before, facts := ask("a", labels)
		now := randomSelecting(w, kind)
		change := store.Change{Key: now.Key, New: now}
		if old := all[now.Key]; old != nil {
			change.Old = old
		}
		all[now.Key] = now
		if change.Old != nil && w.chance(0.3) {
			change.New = nil
			delete(all, now.Key)
		}
		touched := &touched{facts: factSet{}}
		d.index.apply(change, touched)

		after, _ := ask("a", labels)
		require.Equal(t, naivePolicies(all, "a", labels), after)
		if !slices.Equal(before, after) {
			require.True(t, slices.ContainsFunc(facts, func(f fact) bool { _, ok := touched.facts[f]; return ok }))
		}
	}
	for _, o := range all {
		d.index.apply(store.Change{Key: o.Key, Old: o}, &touched{facts: factSet{}})
	}
	require.Empty(t, d.index.policies)
	require.Empty(t, d.index.labels)
}

func naivelySelects(o *selecting, ns string, labels map[string]string) bool {
	if o.Targeted {
		return o.Namespace == ns && slices.Contains(o.Gateways, labels[model.LabelGatewayName])
	}
	return model.SelectorMatches(o.labels, labels)
}

func naivePolicies(all map[model.Key]*selecting, ns string, labels map[string]string) []*selecting {
	var out []*selecting
	for _, in := range []string{"istio-system", ns} {
		from := len(out)
		for _, o := range all {
			if o.Namespace == in && naivelySelects(o, ns, labels) {
				out = append(out, o)
			}
		}
		slices.SortFunc(out[from:], func(a, b *selecting) int { return model.CompareAge(a, b) })
	}
	return out
}
