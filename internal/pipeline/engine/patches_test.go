package engine

import (
	"context"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/test/await"
)

// TestPatchesThatMatchNothing follows an EnvoyFilter whose patches look for a filter that is there, for one that is not, and for
// the clusters of services.
func TestPatchesThatMatchNothing(t *testing.T) {
	e, in, r := start(t)
	filter := func(hosts ...model.Host) store.Event {
		event := filterWith(t, model.EnvoyPatch{}, &hcmv3.HttpFilter{Name: "mine"})
		f := event.Object.(*model.EnvoyFilter)
		f.Patches = nil
		for _, name := range []string{"envoy.filters.http.router", "absent"} {
			f.Patches = append(f.Patches, model.EnvoyPatch{
				Index: len(f.Patches), Target: model.PatchHTTPFilter, Operation: model.PatchRemove, Context: model.PatchOutbound,
				Listener: &model.ListenerMatch{Filter: managerName, SubFilter: name},
			})
		}
		for _, h := range hosts {
			p := filterWith(t, model.EnvoyPatch{
				Index: len(f.Patches), Target: model.PatchCluster, Operation: model.PatchMerge, Cluster: &model.ClusterMatch{Service: h},
			}, &clusterv3.Cluster{AltStatName: "mine"}).Object.(*model.EnvoyFilter).Patches[0]
			f.Patches = append(f.Patches, p)
		}
		return event
	}
	unmatched := func() []int {
		out := []int{}
		for _, m := range e.PatchMatches(context.Background()) {
			if !m.Matched {
				out = append(out, m.Index)
			}
		}
		return out
	}
	in.Put(service("a", 80), filter("a.shop.svc.cluster.local"))
	in.Synced("test")
	await.From(t, r)
	require.Empty(t, unmatched(), "no proxy is connected")
	_, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	defer release()
	require.Equal(t, []int{1}, unmatched())

	in.Put(filter("a.shop.svc.cluster.local", "b.shop.svc.cluster.local"))
	await.From(t, r)
	require.Equal(t, []int{1, 3}, unmatched(), "the patch of the filter still matches although listeners are not translated again")

	in.Put(service("b", 80))
	await.From(t, r)
	require.Equal(t, []int{1}, unmatched())

	in.Put(store.Event{Key: filter().Key})
	await.From(t, r)
	require.Empty(t, unmatched())
}
