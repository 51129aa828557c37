package index

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestIdentitiesFollowPods checks that after each change of a Pod its service's identities equal those computed from all
// Pods.
func TestIdentitiesFollowPods(t *testing.T) {
	labels := func(more map[string]string) map[string]string {
		out := map[string]string{"app": "web", model.LabelTLSMode: model.TLSModeLabelIstio}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	for name, change := range map[string]func(*model.Workload){
		"its account":         func(w *model.Workload) { w.ServiceAccount = "other" },
		"it loses a sidecar":  func(w *model.Workload) { w.Labels = labels(map[string]string{model.LabelTLSMode: ""}) },
		"another service's":   func(w *model.Workload) { w.Labels, w.ServiceAccount = labels(map[string]string{"app": "db"}), "db" },
		"nothing that counts": func(w *model.Workload) { w.Ready, w.Node = false, "elsewhere" },
	} {
		t.Run(name, func(t *testing.T) {
			x, s, pods := webService()
			step := func(old, now *model.Workload) *Identities {
				touched := newTouched()
				x.replaceWorkload(old, now, touched)
				x.settle(touched)
				require.Equal(t, x.identify(s), x.identities[keyOf(s)])
				return x.identities[keyOf(s)]
			}
			require.Equal(t, &Identities{Accounts: []Account{{"shop", "web"}}, Some: true, All: true}, x.identities[keyOf(s)])
			next := *pods[0]
			change(&next)
			step(pods[0], &next)
			ended := next
			ended.Ready, ended.Terminating = false, true
			step(&next, &ended)
			step(&ended, nil)
			require.Equal(t, &Identities{Accounts: []Account{{"shop", "web"}}, Some: true, All: true}, step(nil, pods[0]))
		})
	}
}

// TestIdentitiesFollowSlices checks the same for changes of a slice. Slices count for workloads that the service does not
// select.
func TestIdentitiesFollowSlices(t *testing.T) {
	all := &Identities{Accounts: []Account{{"shop", "web"}}, Some: true, All: true}
	for name, c := range map[string]struct {
		change func(*model.EndpointSlice)
		want   *Identities
	}{
		"one gets ready":        {func(s *model.EndpointSlice) { s.Members[0].Ready = false }, all},
		"one without Pod":       {func(s *model.EndpointSlice) { s.Members[0].Pod = "" }, &Identities{Accounts: all.Accounts, Some: true}},
		"one more":              {func(s *model.EndpointSlice) { s.Members = append(s.Members, model.SliceEndpoint{}) }, &Identities{Accounts: all.Accounts, Some: true}},
		"one that is not known": {func(s *model.EndpointSlice) { s.Members[0].Pod = "unknown" }, &Identities{Accounts: all.Accounts, Some: true}},
		"known soon":            {func(s *model.EndpointSlice) { s.Members[0].Pod, s.PodsListed = "unknown", true }, all},
		"another service's":     {func(s *model.EndpointSlice) { s.Service = "db" }, all},
	} {
		t.Run(name, func(t *testing.T) {
			x, s, _ := webService()
			first := podsFrom(0, 100)
			next := *first
			next.Members = slices.Clone(first.Members)
			c.change(&next)
			listed := next
			listed.PodsListed = true
			for _, step := range [][2]*model.EndpointSlice{{first, &next}, {&next, &listed}, {&listed, nil}, {nil, &next}, {&next, first}} {
				touched := newTouched()
				x.replaceSlice(step[0], step[1], touched)
				x.settle(touched)
				require.Equal(t, x.identify(s), x.identities[keyOf(s)])
				if step[1] == &next {
					require.Equal(t, c.want, x.identities[keyOf(s)])
				}
			}
			require.Equal(t, all, x.identities[keyOf(s)])
		})
	}
}

// TestIdentitiesFollowAddresses checks the same for Pods at addresses that a slice lists without their names.
func TestIdentitiesFollowAddresses(t *testing.T) {
	x, s := newEndpointIndex(), &model.Service{Hostname: "db.shop.svc.cluster.local"}
	x.accepts = func(string, map[string]string, *model.OriginList) *model.PeerTLS { return permissive }
	s.Key = model.Key{Kind: model.KindService, Namespace: "shop", Name: "db"}
	slice := &model.EndpointSlice{Service: "db", Members: []model.SliceEndpoint{{Addresses: []string{"10.0.0.1"}, Ready: true}}}
	slice.Key = model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "db"}
	pod := func(name string, change func(*model.Workload)) *model.Workload {
		w := &model.Workload{Addresses: []string{"10.0.0.1", "fd00::1"}, ServiceAccount: name, Ready: true}
		w.Labels = map[string]string{model.LabelTLSMode: model.TLSModeLabelIstio}
		w.Key = model.Key{Kind: model.KindPod, Namespace: "shop", Name: name}
		if change != nil {
			change(w)
		}
		return w
	}
	none, shop := &Identities{}, func(name string) *Identities {
		return &Identities{Accounts: []Account{{"shop", name}}, Some: true, All: true, Origins: model.OriginsOf(slice.Key)}
	}
	a, pending := pod("a", nil), pod("a", func(w *model.Workload) { w.Addresses = nil })
	ended := pod("a", func(w *model.Workload) { w.Terminating, w.Ready = true, false })
	onHost, elsewhere := pod("a", func(w *model.Workload) { w.HostNetwork = true }), pod("a", func(w *model.Workload) { w.Addresses = []string{"10.0.0.2"} })
	foreign, b := pod("a", func(w *model.Workload) { w.Namespace = "bank" }), pod("b", nil)
	touched := newTouched()
	x.addService(s, touched)
	x.replaceSlice(nil, slice, touched)
	x.settle(touched)
	for _, step := range []struct {
		name     string
		old, now *model.Workload
		want     *Identities
	}{
		{"a Pod of another namespace", nil, foreign, none},
		{"no address yet", nil, pending, none},
		{"its address", pending, a, shop("a")},
		{"a second Pod, which does not count", nil, b, shop("a")},
		{"the first has ended", a, ended, shop("b")},
		{"it is gone", ended, nil, shop("b")},
		{"no Pod", b, nil, none},
		{"the address of a node", nil, onHost, none},
		{"its own address", onHost, a, shop("a")},
		{"another address", a, elsewhere, none},
	} {
		t.Run(step.name, func(t *testing.T) {
			before := x.sets[keyOf(s)]
			touched := newTouched()
			x.replaceWorkload(step.old, step.now, touched)
			x.settle(touched)
			require.Equal(t, x.identify(s), cmp.Or(x.identities[keyOf(s)], noIdentities))
			require.Equal(t, step.want, cmp.Or(x.identities[keyOf(s)], noIdentities))
			e := x.sets[keyOf(s)].Get()[0]
			require.Equal(t, step.want.Some, e.Sidecar)
			if step.want.Some {
				require.Equal(t, step.want.Accounts[0].Name, e.ServiceAccount)
				require.NotSame(t, before, x.sets[keyOf(s)])
			}
		})
	}
}
