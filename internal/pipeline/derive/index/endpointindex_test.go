package index

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestEntriesBesideSlices checks that WorkloadEntries that a Kubernetes service selects are endpoints beside those of its
// slices, in the order of addresses.
func TestEntriesBesideSlices(t *testing.T) {
	x := newEndpointIndex()
	s := &model.Service{Hostname: "web.shop.svc.cluster.local", Selector: map[string]string{"app": "web"}}
	s.Key = model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}
	slice := &model.EndpointSlice{Service: "web", Members: []model.SliceEndpoint{{Addresses: []string{"10.0.0.2"}, Ready: true}}}
	slice.Key = model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "web-1"}
	x.addService(s, newTouched())
	x.replaceSlice(nil, slice, newTouched())
	entry := func(ns, name, address string) *model.Workload {
		w := &model.Workload{Addresses: []string{address}, Ready: true}
		w.Key, w.Labels = model.Key{Kind: model.KindWorkloadEntry, Namespace: ns, Name: name}, s.Selector
		return w
	}
	unhealthy := entry("shop", "vm-1", "10.0.0.1")
	unhealthy.Ready = false
	first, second, elsewhere := entry("shop", "vm-1", "10.0.0.1"), entry("shop", "vm-2", "10.0.0.3"), entry("bank", "vm-1", "10.0.0.4")
	for _, step := range []struct {
		old, now *model.Workload
		want     []string
	}{
		{nil, elsewhere, []string{"10.0.0.2"}},
		{nil, first, []string{"10.0.0.1", "10.0.0.2"}},
		{nil, second, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}},
		{first, first, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}},
		{first, unhealthy, []string{"10.0.0.2", "10.0.0.3"}},
		{unhealthy, first, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}},
		{first, nil, []string{"10.0.0.2", "10.0.0.3"}},
		{second, nil, []string{"10.0.0.2"}},
	} {
		x.replaceWorkload(step.old, step.now, newTouched())
		var addresses []string
		for _, e := range x.sets[keyOf(s)].Get() {
			addresses = append(addresses, e.Address)
		}
		require.Equal(t, step.want, addresses)
	}
	require.Len(t, x.entries, 1, "only the other namespace has any")
}
