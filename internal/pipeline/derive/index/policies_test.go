package index

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// selecting is an object of a kind for the test that selects workloads.
type selecting struct {
	model.Meta
	model.Targets
	labels   map[string]string
	outbound bool
}

func (s *selecting) SelectorLabels() map[string]string { return s.labels }
func (s *selecting) ShapesOutbound() bool              { return s.outbound }

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func randomSelecting(r *rand.Rand, kind model.Kind) *selecting {
	versions := []string{"v1", "v2"}
	s := &selecting{outbound: r.IntN(2) == 0}
	s.Key = model.Key{Kind: kind, Namespace: pick(r, []string{"a", "b", "istio-system"}), Name: pick(r, []string{"x", "y", "z"})}
	s.Created = time.Unix(int64(r.IntN(3)), 0)
	if r.IntN(10) < 3 {
		s.Targets = model.Targets{Targeted: true, Gateways: pick(r, [][]string{nil, versions, {"v1"}, {"v2"}})}
		return s
	}
	for _, k := range []string{"app", "version"} {
		if r.IntN(2) == 0 {
			if s.labels == nil {
				s.labels = map[string]string{}
			}
			s.labels[k] = pick(r, versions)
		}
	}
	return s
}

// TestPoliciesAreThoseThatSelect compares the index with a search through all objects, and the facts that a change touches
// with the answers that differ.
func TestPoliciesAreThoseThatSelect(t *testing.T) {
	const kind model.Kind = "Test"
	random := rand.New(rand.NewPCG(1, 2))
	x := New(model.DefaultMesh())
	all := map[model.Key]*selecting{}
	ask := func(ns string, labels map[string]string) ([]*selecting, FactList) {
		r := x.NewReader(nil)
		return policiesFor[*selecting](r, kind, ns, labels), r.facts
	}
	labels := map[string]string{"app": "v1", "version": "v2", "other": "x", model.LabelGatewayName: "v1"}
	for range 500 {
		before, facts := ask("a", labels)
		now := randomSelecting(random, kind)
		change := store.Change{Key: now.Key, New: now}
		if old := all[now.Key]; old != nil {
			change.Old = old
		}
		all[now.Key] = now
		if change.Old != nil && random.IntN(10) < 3 {
			change.New = nil
			delete(all, now.Key)
		}
		touched := newTouched()
		x.apply(change, touched)

		after, _ := ask("a", labels)
		require.Equal(t, naivePolicies(all, "a", labels), after)
		if !slices.Equal(before, after) {
			require.True(t, slices.ContainsFunc(facts, func(f Fact) bool { _, ok := touched.Facts[f]; return ok }))
		}
	}
	for _, o := range all {
		x.apply(store.Change{Key: o.Key, Old: o}, newTouched())
	}
	require.Empty(t, x.policies)
	require.Empty(t, x.labels)
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
