package cluster

import (
	"fmt"
	"testing"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

func manyEndpoints(n int) *ir.Endpoints {
	v := &ir.Endpoints{Cluster: "outbound|80||reviews.shop.svc.cluster.local"}
	l := ir.LocalityEndpoints{Locality: model.Locality{Region: "eu", Zone: "a"}}
	for i := range n {
		l.Endpoints = append(l.Endpoints, ir.Endpoint{
			Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Port: 8080, Weight: 1,
			Workload: "reviews-v1", Namespace: "shop", Canonical: "reviews", Revision: "v1", Cluster: "Kubernetes",
		})
	}
	v.Localities = []ir.LocalityEndpoints{l}
	return v
}

func BenchmarkEndpoints(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			v := manyEndpoints(n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := EncodeEndpoints(v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCluster(b *testing.B) {
	v := &ir.Cluster{
		Name:     "outbound|80||reviews.shop.svc.cluster.local",
		Of:       resourcename.Cluster{Direction: resourcename.Outbound, Port: 80, Host: "reviews.shop.svc.cluster.local"},
		Service:  ir.ServiceRef{Host: "reviews.shop.svc.cluster.local", Name: "reviews", Namespace: "shop"},
		Protocol: model.ProtocolHTTP,
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Translate(v); err != nil {
			b.Fatal(err)
		}
	}
}
