package route

import (
	"fmt"
	"testing"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// plainHost is the virtual host of a service without a VirtualService.
func plainHost() *ir.VirtualHost {
	const host = "reviews.shop.svc.cluster.local"
	return &ir.VirtualHost{
		RouteConfig: "80", Name: host + ":80",
		Domains:         []string{host, "reviews.shop.svc", "reviews.shop", "reviews", "10.96.1.2"},
		IncludeAttempts: true,
		Routes: []ir.Route{{
			Name:      "default",
			Backends:  []ir.Backend{{Cluster: "outbound|80||" + host, Weight: 1}},
			Retry:     &model.Retry{Attempts: 2, RetryOn: "connect-failure,refused-stream,unavailable,cancelled"},
			Operation: host + ":80/*",
		}},
	}
}

// richHost has n routes with the usual fields of VirtualServices.
func richHost(n int) *ir.VirtualHost {
	v := plainHost()
	retry := v.Routes[0].Retry
	v.Routes = nil
	for i := range n {
		v.Routes = append(v.Routes, ir.Route{
			Name: fmt.Sprintf("route-%d", i),
			Match: &ir.Match{
				URI: &model.StringMatch{Kind: model.MatchPrefix, Value: fmt.Sprintf("/api/v1/things/%d", i)},
				Headers: []model.HeaderMatch{
					{Name: "end-user", StringMatch: model.StringMatch{Kind: model.MatchRegex, Value: "j[a-z]+n"}},
				},
			},
			Backends: []ir.Backend{{Cluster: "v1", Weight: 90}, {Cluster: "v2", Weight: 10}},
			Retry:    retry,
			Headers: model.Headers{Request: model.HeaderOps{
				Set: []model.HeaderValue{{Name: "x-client", Value: "%DOWNSTREAM_REMOTE_ADDRESS%"}},
			}},
			Origin: model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "reviews"},
		})
	}
	return v
}

func BenchmarkVirtualHost(b *testing.B) {
	for _, c := range []struct {
		name string
		host *ir.VirtualHost
	}{{"plain", plainHost()}, {"10routes", richHost(10)}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := VirtualHost(c.host); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkVirtualHostEncoded includes the encoding.
func BenchmarkVirtualHostEncoded(b *testing.B) {
	v := plainHost()
	size := 0
	b.ReportAllocs()
	for b.Loop() {
		m, _, err := VirtualHost(v)
		if err != nil {
			b.Fatal(err)
		}
		bytes, err := envoyproto.Deterministic.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		size = len(bytes)
	}
	b.ReportMetric(float64(size), "wire-B")
}
