package derive

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// manyServices makes n services of one port and two endpoints each.
func manyServices(n int, protocol model.Protocol) []store.Change {
	var out []store.Change
	add := func(o model.Object) { out = append(out, store.Change{Key: o.Metadata().Key, New: o}) }
	for i := range n {
		name := fmt.Sprintf("service-%d", i)
		add(&model.Service{
			Meta:       model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: name}},
			Hostname:   model.ResolveHost(name, "shop", "cluster.local"),
			Addresses:  []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 32)},
			Ports:      []model.ServicePort{{Name: "p", Number: 80, Protocol: protocol}},
			Resolution: model.ResolutionStatic,
		})
		add(&model.EndpointSlice{
			Meta:    model.Meta{Key: model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: name}},
			Service: name, Ports: []model.SlicePort{{Name: "p", Number: 8080}},
			Members: []model.SliceEndpoint{
				{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i>>8, i&255)}, Ready: true},
				{Addresses: []string{fmt.Sprintf("10.2.%d.%d", i>>8, i&255)}, Ready: true},
			},
		})
	}
	return out
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkGroup derives one group from nothing. It reports the time, which must grow no faster than the services, and the
// memory that the group keeps for each of them.
func BenchmarkGroup(b *testing.B) {
	for _, protocol := range []model.Protocol{model.ProtocolHTTP, model.ProtocolTCP, model.ProtocolAuto} {
		for _, services := range []int{2000, 20000} {
			if testing.Short() && services > 2000 {
				continue // that they run is seen at less
			}
			b.Run(fmt.Sprintf("%s/services=%d", protocol, services), func(b *testing.B) {
				d := New(model.DefaultMesh(), 1)
				d.Apply(manyServices(services, protocol))
				warm := GroupKey{Namespace: "warm", Type: model.ProxySidecar, Domain: "cluster.local"}
				d.Open(warm) // the index computes endpoints when they are first used
				d.Close(warm)
				var kept uint64
				n := 0
				for b.Loop() {
					b.StopTimer()
					before := heap()
					b.StartTimer()
					d.Open(GroupKey{Namespace: fmt.Sprint("ns", n), Type: model.ProxySidecar, Domain: "cluster.local"})
					b.StopTimer()
					kept = heap() - before
					d.Close(GroupKey{Namespace: fmt.Sprint("ns", n), Type: model.ProxySidecar, Domain: "cluster.local"})
					n++
					b.StartTimer()
				}
				b.ReportMetric(float64(kept)/float64(services), "kept-B/service")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*services), "ns/service")
			})
		}
	}
}
