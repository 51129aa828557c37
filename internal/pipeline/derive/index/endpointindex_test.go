package index

import (
	"fmt"
	"slices"
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

// TestReusedAddresses checks that of two Pods at one address the one that does not terminate is the endpoint, in any order of the
// slices and of their members.
func TestReusedAddresses(t *testing.T) {
	pod := func(name, version string) *model.Workload {
		w := &model.Workload{Addresses: []string{"10.0.0.1"}, ServiceAccount: version, Node: "node-" + version}
		w.Key, w.Labels = model.Key{Kind: model.KindPod, Namespace: "shop", Name: name}, map[string]string{"version": version}
		return w
	}
	leaving := model.SliceEndpoint{Addresses: []string{"10.0.0.1"}, Serving: true, Terminating: true, Pod: "old"}
	ready := model.SliceEndpoint{Addresses: []string{"10.0.0.1"}, Ready: true, Serving: true, Pod: "new"}
	for name, test := range map[string]struct {
		publishNotReady bool
		slices          [][]model.SliceEndpoint
	}{
		"the old one first":                {false, [][]model.SliceEndpoint{{leaving, ready}}},
		"the new one first":                {false, [][]model.SliceEndpoint{{ready, leaving}}},
		"in another slice":                 {false, [][]model.SliceEndpoint{{leaving}, {ready}}},
		"in an earlier slice":              {false, [][]model.SliceEndpoint{{ready}, {leaving}}},
		"the old one first, ready or not":  {true, [][]model.SliceEndpoint{{leaving, ready}}},
		"the new one first, ready or not":  {true, [][]model.SliceEndpoint{{ready, leaving}}},
		"in another slice, ready or not":   {true, [][]model.SliceEndpoint{{leaving}, {ready}}},
		"and once more in a slice of both": {true, [][]model.SliceEndpoint{{leaving}, {ready, leaving}}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newEndpointIndex()
			s := &model.Service{Hostname: "web.shop.svc.cluster.local", Selector: map[string]string{"app": "web"}, PublishNotReady: test.publishNotReady}
			s.Key = model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}
			x.addService(s, newTouched())
			x.replaceWorkload(nil, pod("old", "v1"), newTouched())
			x.replaceWorkload(nil, pod("new", "v2"), newTouched())
			for i, members := range test.slices {
				slice := &model.EndpointSlice{Service: "web", PodsListed: true, Members: members, Ports: []model.SlicePort{{Name: "http", Number: 8080}}}
				slice.Key = model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: fmt.Sprint("web-", i)}
				if slices.ContainsFunc(members, func(m model.SliceEndpoint) bool { return m.Pod == "new" }) {
					slice.Ports = []model.SlicePort{{Name: "http", Number: 9090}}
				}
				x.replaceSlice(nil, slice, newTouched())
			}
			got := x.sets[keyOf(s)].Get()
			require.Len(t, got, 1)
			require.Equal(t, model.Healthy, got[0].Health)
			require.Equal(t, "v2", got[0].Labels["version"])
			require.Equal(t, "v2", got[0].ServiceAccount)
			require.Equal(t, "node-v2", got[0].Node)
			require.Equal(t, map[string]uint32{"http": 9090}, got[0].Ports)
		})
	}
}
