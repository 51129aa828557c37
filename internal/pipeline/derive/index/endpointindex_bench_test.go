package index

import (
	"fmt"
	"slices"
	"testing"

	"github.com/moonsail/moonsail/internal/model"
)

// BenchmarkEndpoints lists a service's endpoints once: what each change of one of them takes.
func BenchmarkEndpoints(b *testing.B) {
	for _, n := range []int{10, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, s := newEndpointIndex(), &model.Service{Hostname: "web.shop.svc.cluster.local"}
			s.Key = model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}
			touched := newTouched()
			x.addService(s, touched)
			for i := 0; i < n; i += 100 {
				x.replaceSlice(nil, podsFrom(i, min(100, n-i)), touched)
			}
			b.ReportAllocs()
			for b.Loop() {
				x.compute(s, new(model.OriginList))
			}
		})
	}
}

// webService has a service that selects 500 Pods with sidecars, and lists them in slices.
func webService() (x *endpointIndex, s *model.Service, pods []*model.Workload) {
	x, s = newEndpointIndex(), &model.Service{Hostname: "web.shop.svc.cluster.local", Selector: map[string]string{"app": "web"}}
	x.accepts = func(string, map[string]string, *model.OriginList) *model.PeerTLS { return permissive }
	s.Key = model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}
	touched := newTouched()
	x.addService(s, touched)
	for i := 0; i < 500; i += 100 {
		slice := podsFrom(i, 100)
		x.replaceSlice(nil, slice, touched)
		for _, m := range slice.Members {
			w := &model.Workload{ServiceAccount: "web", Ready: true}
			w.Labels = map[string]string{"app": "web", model.LabelTLSMode: model.TLSModeLabelIstio}
			w.Key = model.Key{Kind: model.KindPod, Namespace: "shop", Name: m.Pod}
			x.replaceWorkload(nil, w, touched)
			pods = append(pods, w)
		}
	}
	x.settle(touched)
	return x, s, pods
}

// BenchmarkIdentities looks at a Pod of 500 that has got ready, and at one that has ended: who the
// workloads of its service are.
func BenchmarkIdentities(b *testing.B) {
	x, _, pods := webService()
	for name, change := range map[string]func(*model.Workload){
		"ready": func(w *model.Workload) { w.Ready = false },
		"ended": func(w *model.Workload) { w.Ready, w.Terminating = false, true },
	} {
		b.Run(name, func(b *testing.B) {
			next := *pods[0]
			change(&next)
			old, now := pods[0], &next
			b.ReportAllocs()
			for b.Loop() {
				touched := newTouched()
				x.replaceWorkload(old, now, touched)
				x.settle(touched)
				old, now = now, old
			}
			x.replaceWorkload(old, pods[0], newTouched())
		})
	}
}

// podsFrom has n Pods from the i-th on.
func podsFrom(i, n int) *model.EndpointSlice {
	out := &model.EndpointSlice{Service: "web", Ports: []model.SlicePort{{Name: "http", Number: 8080}}}
	out.Key = model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
	for j := range n {
		at := (i + j) * 7919 % 65521 // in no order, as addresses are
		out.Members = append(out.Members, model.SliceEndpoint{Addresses: []string{fmt.Sprintf("10.4.%d.%d", at/256, at%256)}, Ready: true, Pod: fmt.Sprintf("web-%d", at)})
	}
	return out
}

// BenchmarkSlice takes a slice of a service of 500 Pods in which one gets ready, or is replaced by another that
// is known, and lists the service's endpoints.
func BenchmarkSlice(b *testing.B) {
	for name, change := range map[string]func(*model.SliceEndpoint){
		"ready":    func(m *model.SliceEndpoint) { m.Ready = false },
		"replaced": func(m *model.SliceEndpoint) { m.Pod = "web-1" },
	} {
		b.Run(name, func(b *testing.B) {
			x, s, _ := webService()
			old := podsFrom(0, 100)
			now := *old
			now.Members = slices.Clone(old.Members)
			change(&now.Members[50])
			from, to := old, &now
			b.ReportAllocs()
			for b.Loop() {
				touched := newTouched()
				x.replaceSlice(from, to, touched)
				x.settle(touched)
				x.sets[keyOf(s)].Get()
				from, to = to, from
			}
		})
	}
}
