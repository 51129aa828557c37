package derive

import (
	"fmt"
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
				x.compute(s)
			}
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
