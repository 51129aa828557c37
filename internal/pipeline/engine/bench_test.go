package engine

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// mesh makes an engine with services of two endpoints, and one outbound proxy group for each namespace.
// It runs no goroutine.
func mesh(b *testing.B, services, namespaces int) *Engine {
	b.Helper()
	e := New(Options{Intake: store.NewIntake(), Recorder: noRecorder{}, Log: slog.New(slog.DiscardHandler)})
	e.publisher = noRecorder{}
	var events []store.Event
	for i := range services {
		events = append(events, benchService(i, "1"), benchSlice(i, 0))
	}
	e.batch(events)
	for i := range namespaces {
		e.bind(&binding{proxy: proxy("web", fmt.Sprintf("ns%d", i))}, make(chan []*table.Table, 1))
	}
	return e
}

func benchService(i int, version string) store.Event {
	name := fmt.Sprintf("service-%d", i)
	s := &model.Service{
		Meta:       model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "ns0", Name: name}, ResourceVersion: version},
		Hostname:   model.ResolveHost(name, "ns0", "cluster.local"),
		Addresses:  []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 32)},
		Ports:      []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
		Resolution: model.ResolutionStatic,
	}
	return store.Event{Key: s.Key, Object: s}
}

func benchSlice(i, generation int) store.Event {
	name := fmt.Sprintf("service-%d", i)
	s := &model.EndpointSlice{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindEndpointSlice, Namespace: "ns0", Name: name}, ResourceVersion: fmt.Sprint(generation)},
		Service: name, Ports: []model.SlicePort{{Name: "http", Number: 8080}},
	}
	for j := range 2 {
		s.Members = append(s.Members, model.SliceEndpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", generation%200, i>>8&255, i&255+j)}, Ready: true, Serving: true,
		})
	}
	return store.Event{Key: s.Key, Object: s}
}

func benchRoute(i, generation int) store.Event {
	host := model.ResolveHost(fmt.Sprintf("service-%d", i), "ns0", "cluster.local")
	v := &model.VirtualService{
		Meta:  model.Meta{Key: model.Key{Kind: model.KindVirtualService, Namespace: "ns0", Name: "route"}, ResourceVersion: fmt.Sprint(generation)},
		Hosts: []model.Host{host}, Gateways: []string{model.GatewayMesh},
		HTTP: []model.HTTPRoute{{
			Backends: []model.Backend{{Destination: model.Destination{Host: host}, Weight: 1}},
			Headers:  model.Headers{Request: model.HeaderOps{Set: []model.HeaderValue{{Name: "x-generation", Value: fmt.Sprint(generation)}}}},
		}},
	}
	return store.Event{Key: v.Key, Object: v}
}

// BenchmarkChange measures one change from its event to the tables. The cost must not grow with the
// number of services.
func BenchmarkChange(b *testing.B) {
	for _, services := range sizes(100, 1000, 20000) {
		for _, c := range []struct {
			name   string
			change func(n int) store.Event
		}{
			{"endpoint", func(n int) store.Event { return benchSlice(7, n+1) }},
			{"route", func(n int) store.Event { return benchRoute(7, n+1) }},
			{"service", func(n int) store.Event { return benchService(services+n, "1") }},
		} {
			b.Run(fmt.Sprintf("%s/services=%d", c.name, services), func(b *testing.B) {
				e := mesh(b, services, 1)
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					e.batch([]store.Event{c.change(n)})
				}
			})
		}
	}
}

// BenchmarkScopedChange measures the change of a route in a whole route configuration, and in one that
// also exists in shards.
func BenchmarkScopedChange(b *testing.B) {
	for _, split := range []bool{false, true} {
		b.Run(fmt.Sprintf("split=%t", split), func(b *testing.B) {
			e := mesh(b, 3000, 0)
			p := proxy("web", "ns0")
			p.ScopedRoutes = split
			e.bind(&binding{proxy: p}, make(chan []*table.Table, 1))
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				e.batch([]store.Event{benchRoute(7, n+1)})
			}
		})
	}
}

// BenchmarkChangeGroups measures one endpoint change that many proxy groups see.
func BenchmarkChangeGroups(b *testing.B) {
	for _, groups := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("endpoint/groups=%d", groups), func(b *testing.B) {
			e := mesh(b, 500, groups)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				e.batch([]store.Event{benchSlice(7, n+1)})
			}
		})
	}
}

// BenchmarkOpen measures a new proxy group: the cost of the first proxy of a kind.
func BenchmarkOpen(b *testing.B) {
	for _, services := range sizes(500, 20000) {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			e := mesh(b, services, 0)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				e.bind(&binding{proxy: proxy("web", fmt.Sprintf("client-%d", n))}, make(chan []*table.Table, 1))
			}
		})
	}
}

// sizes leaves out the largest size with -short, when benchmarks only have to run.
func sizes(all ...int) []int {
	if testing.Short() {
		return all[:len(all)-1]
	}
	return all
}
