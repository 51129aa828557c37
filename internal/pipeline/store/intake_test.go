package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/await"
)

func key(kind model.Kind, name string) model.Key {
	return model.Key{Kind: kind, Namespace: "shop", Name: name}
}

// storm puts n events of a kind, one by one.
func storm(in *Intake, kind model.Kind, n int) {
	for i := range n {
		in.Put(Event{Key: key(kind, fmt.Sprint(i))})
	}
}

func count(events []Event, kind model.Kind) int {
	n := 0
	for _, e := range events {
		if e.Key.Kind == kind {
			n++
		}
	}
	return n
}

// TestStormOfOneKind checks that events of other kinds do not wait for its end, and urgent events are first.
func TestStormOfOneKind(t *testing.T) {
	in := NewIntake()
	storm(in, model.KindPod, 5*batchLimit)
	storm(in, model.KindVirtualService, 10)
	in.Put(Event{Key: key(model.KindEndpointSlice, "late"), Urgent: true})
	require.Equal(t, 5*batchLimit, in.DepthOf(model.KindPod))

	await.From(t, in.Ready())
	events := in.Take()
	require.InDelta(t, batchLimit, len(events), 5, "a batch is bounded")
	require.Equal(t, 1, count(events, model.KindEndpointSlice))
	require.Equal(t, 10, count(events, model.KindVirtualService))
	require.Equal(t, key(model.KindPod, "0"), events[0].Key, "the order within a kind is kept")

	seen := map[model.Key]bool{}
	for n := len(events); n > 0; n = len(events) {
		for _, e := range events {
			require.False(t, seen[e.Key], "%s comes twice", e.Key)
			seen[e.Key] = true
		}
		if in.Depth() > 0 {
			await.From(t, in.Ready()) // the rest is ready at once
		}
		events = in.Take()
	}
	require.Len(t, seen, 5*batchLimit+11)
	require.Zero(t, in.Depth())
	require.Zero(t, in.DepthOf(model.KindPod))
}

func TestTakeAllHasNoLimit(t *testing.T) {
	in := NewIntake()
	storm(in, model.KindPod, 3*batchLimit)
	require.Len(t, in.TakeAll(), 3*batchLimit)
}

// TestGroupIsTakenTogether checks that the events of one Put are taken together, also if they are merged with others.
func TestGroupIsTakenTogether(t *testing.T) {
	in := NewIntake()
	storm(in, model.KindPod, 2*batchLimit)
	in.Put(Event{Key: key(model.KindService, "a")}, Event{Key: key(model.KindService, "b")}, Event{Key: key(model.KindService, "c")})
	events := in.Take()
	require.Equal(t, 3, count(events, model.KindService))
	require.Positive(t, in.Depth())

	last := key(model.KindPod, fmt.Sprint(2*batchLimit-1))
	in.Put(Event{Key: key(model.KindService, "d")}, Event{Key: last})
	events = in.Take()
	require.Equal(t, 1, count(events, model.KindService))
	require.Contains(t, keys(events), last)
	require.Zero(t, in.Depth(), "groups that share an object are taken together")
}

func keys(events []Event) []model.Key {
	out := make([]model.Key, len(events))
	for i, e := range events {
		out[i] = e.Key
	}
	return out
}

// TestMergedEventStaysUrgent checks that an urgent event stays urgent if a later one of its object is not.
func TestMergedEventStaysUrgent(t *testing.T) {
	in := NewIntake()
	storm(in, model.KindPod, 2*batchLimit)
	k := key(model.KindPod, fmt.Sprint(2*batchLimit-1))
	in.Put(Event{Key: k, Urgent: true})
	in.Put(Event{Key: k, Object: &model.Workload{}})
	events := in.Take()
	require.Contains(t, keys(events), k)
}

func TestRemovesEndpoints(t *testing.T) {
	slice := func(members ...model.SliceEndpoint) *model.EndpointSlice {
		return &model.EndpointSlice{Members: members}
	}
	member := func(a string, ready bool) model.SliceEndpoint {
		return model.SliceEndpoint{Addresses: []string{a}, Ready: ready}
	}
	one, two := member("10.0.0.1", true), member("10.0.0.2", true)
	up, down := &model.Workload{Ready: true}, &model.Workload{}
	for name, c := range map[string]struct {
		old, now model.Object
		want     bool
	}{
		"a new slice":         {nil, slice(one), false},
		"one more endpoint":   {slice(one), slice(one, two), false},
		"one endpoint less":   {slice(one, two), slice(two), true},
		"one is not ready":    {slice(one, two), slice(one, member("10.0.0.2", false)), true},
		"one was never ready": {slice(one, member("10.0.0.2", false)), slice(one), false},
		"a deleted slice":     {slice(one), nil, true},
		"a deleted Pod":       {up, nil, true},
		"a Pod is not ready":  {up, down, true},
		"a Pod is ready":      {down, up, false},
		"a Pod terminates":    {up, &model.Workload{Ready: true, Terminating: true}, true},
		"a service":           {service("a", "1"), service("a", "2"), false},
		"an unknown object":   {nil, nil, false},
	} {
		require.Equal(t, c.want, RemovesEndpoints(c.old, c.now), name)
	}
}
