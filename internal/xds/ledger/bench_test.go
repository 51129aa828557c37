package ledger

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// benchMesh returns a table of n services, and a stream of an Envoy that has all of it.
func benchMesh(n int) (*table.Table, *Ledger) {
	t := table.New("out")
	t.Commit(1, benchUpdates(n))
	l := New(Delta, VirtualHosts, names.NewPool(), []*table.State{t.State()})
	benchConnect(l, n)
	return t, l
}

// copied returns a ledger in the same state.
func copied(l *Ledger) *Ledger {
	out := *l
	out.connect()
	return &out
}

func benchUpdates(n int) []table.Update {
	put := func(t resource.Type, name string) table.Update {
		return table.Update{Type: t, Name: name, Resource: content{n: 1}.encode(t, name)}
	}
	updates := []table.Update{put(resource.VHDSRouteConfig, "80"), put(resource.RouteConfig, "80"), put(resource.Listener, "0.0.0.0_80")}
	for i := range n {
		host := fmt.Sprintf("service-%d.ns.svc.cluster.local", i)
		updates = append(updates, put(resource.Cluster, "outbound|80||"+host), put(resource.Endpoints, "outbound|80||"+host), put(resource.VirtualHost, "80/"+host+":80"))
	}
	return updates
}

func benchConnect(l *Ledger, n int) {
	var eds [][]byte
	for i := range n {
		eds = append(eds, fmt.Appendf(nil, "outbound|80||service-%d.ns.svc.cluster.local", i))
	}
	for _, r := range []Request{
		{TypeURL: []byte(resource.ClusterURL)}, {TypeURL: []byte(resource.EndpointsURL), Subscribe: eds}, {TypeURL: []byte(resource.ListenerURL)},
		{TypeURL: []byte(resource.RouteConfigURL), Subscribe: slices2("80")}, {TypeURL: []byte(resource.VirtualHostURL)},
	} {
		l.Handle(&r)
		benchAnswer(l)
	}
}

// benchAnswer ACKs everything.
func benchAnswer(l *Ledger) {
	for {
		out := l.Next(nil)
		if len(out) == 0 {
			return
		}
		for _, r := range out {
			l.Handle(&Request{TypeURL: []byte(r.Type.URL()), Nonce: strconv.AppendUint(nil, r.Nonce, 10)})
		}
	}
}

// BenchmarkStep measures one changed resource on one stream: the response, its ACK, and what is
// settled. The cost must not grow with the mesh.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{100, 20_000} {
		for _, c := range []struct {
			t    resource.Type
			name string
		}{{resource.Endpoints, "outbound|80||service-7.ns.svc.cluster.local"}, {resource.VirtualHost, "80/service-7.ns.svc.cluster.local:80"}} {
			b.Run(fmt.Sprintf("%s/%d", c.t, n), func(b *testing.B) {
				t, l := benchMesh(n)
				const streams = 1000 // they share a change, as in a fan-out
				ledgers := make([]*Ledger, streams)
				for i := range ledgers {
					ledgers[i] = copied(l)
				}
				url := []byte(c.t.URL())
				var room [5]Response
				rev := model.Revision(1)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if i%streams == 0 {
						rev++
						t.Commit(rev, []table.Update{{Type: c.t, Name: c.name, Resource: content{n: int(rev)}.encode(c.t, c.name)}})
					}
					l := ledgers[i%streams]
					l.Update([]*table.State{t.State()})
					out := l.Next(room[:0])
					if len(out) != 1 {
						b.Fatal(len(out))
					}
					var nonce [20]byte
					l.Handle(&Request{TypeURL: url, Nonce: strconv.AppendUint(nonce[:0], out[0].Nonce, 10)})
					l.Next(room[:0])
					if got, _ := l.Settle(); got != rev {
						b.Fatal(got)
					}
				}
			})
		}
	}
}

// BenchmarkNewService measures a new service on one stream. The proxy answers as Envoy does: it
// requests the endpoints before it ACKs them.
func BenchmarkNewService(b *testing.B) {
	for _, n := range []int{100, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t, l := benchMesh(n)
			const streams = 1000
			ledgers := make([]*Ledger, streams)
			for i := range ledgers {
				ledgers[i] = copied(l)
			}
			rev, room := model.Revision(1), [5]Response{}
			var cluster string
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%streams == 0 {
					rev++
					host := fmt.Sprintf("new-%d.ns.svc.cluster.local", rev)
					cluster = "outbound|80||" + host
					var updates []table.Update
					for typ, name := range map[resource.Type]string{resource.Cluster: cluster, resource.Endpoints: cluster, resource.VirtualHost: "80/" + host + ":80"} {
						updates = append(updates, table.Update{Type: typ, Name: name, Resource: content{n: int(rev)}.encode(typ, name)})
					}
					t.Commit(rev, updates)
				}
				l := ledgers[i%streams]
				l.Update([]*table.State{t.State()})
				benchNewService(b, l, l.Next(room[:0]), cluster, rev)
				if got, _ := l.Settle(); got != rev {
					b.Fatal(got)
				}
			}
		})
	}
}

// benchNewService answers the responses of a new service.
func benchNewService(b *testing.B, l *Ledger, out []Response, cluster string, rev model.Revision) {
	if rev == 2 { // from the first service the ledger learns that the proxy uses prefetched endpoints
		benchAsk(l, cluster)
		for _, r := range out {
			l.Handle(&Request{TypeURL: []byte(r.Type.URL()), Nonce: strconv.AppendUint(nil, r.Nonce, 10)})
		}
		benchAnswer(l)
		return
	}
	if len(out) != 3 {
		b.Fatal(len(out))
	}
	benchAsk(l, cluster)
	var nonce [20]byte
	for _, r := range out {
		l.Handle(&Request{TypeURL: []byte(r.Type.URL()), Nonce: strconv.AppendUint(nonce[:0], r.Nonce, 10)})
	}
	if again := l.Next(nil); len(again) > 0 {
		b.Fatal(again)
	}
}

func benchAsk(l *Ledger, cluster string) {
	l.Handle(&Request{TypeURL: []byte(resource.EndpointsURL), Subscribe: slices2(cluster)})
}

// BenchmarkConnect measures a stream up to the last ACK, of a proxy that gets everything.
func BenchmarkConnect(b *testing.B) {
	for _, n := range []int{50, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t, first := benchMesh(n)
			b.ReportAllocs()
			for b.Loop() {
				benchConnect(New(Delta, VirtualHosts, first.pool, []*table.State{t.State()}), n)
			}
		})
	}
}

// BenchmarkReconnect measures a proxy that has everything, or all shards of its route configuration
// and not the whole.
func BenchmarkReconnect(b *testing.B) {
	for _, shards := range []int{0, 512} {
		b.Run(fmt.Sprint("shards=", shards), func(b *testing.B) { benchReconnect(b, shards) })
	}
}

// benchParts adds each service's virtual host to a route shard.
func benchParts(t *table.Table, n, shards int) {
	var updates []table.Update
	for i := range n {
		part := fmt.Sprint("80~", shards/2, "~", i%shards)
		updates = append(updates,
			table.Update{Type: resource.VHDSRouteConfig, Name: part, Resource: content{n: 1}.encode(resource.VHDSRouteConfig, part)},
			table.Update{Type: resource.VirtualHost, Name: fmt.Sprint(part, "/service-", i), Resource: content{n: 1}.encode(resource.VirtualHost, part)},
		)
	}
	t.Commit(2, updates)
}

func benchReconnect(b *testing.B, shards int) {
	const n = 2500
	t, first := benchMesh(n)
	if shards > 0 {
		benchParts(t, n, shards)
	}
	s := t.State()
	var requests []Request
	for _, typ := range []resource.Type{resource.Cluster, resource.Endpoints, resource.Listener, resource.VHDSRouteConfig, resource.VirtualHost} {
		r := Request{TypeURL: []byte(typ.URL())}
		for e := range s.All(typ) {
			if shards > 0 && (typ == resource.VHDSRouteConfig && e.Name == "80" || typ == resource.VirtualHost && table.RouteConfigOf(e.Name) == "80") {
				continue // no listener uses it
			}
			r.Initial = append(r.Initial, NameVersion{[]byte(e.Name), []byte(e.Version)})
			if typ == resource.Endpoints || typ == resource.VHDSRouteConfig {
				r.Subscribe = append(r.Subscribe, []byte(e.Name))
			}
		}
		requests = append(requests, r)
	}
	b.ReportAllocs()
	for b.Loop() {
		l := New(Delta, VirtualHosts, first.pool, []*table.State{s})
		for i := range requests {
			l.Handle(&requests[i])
			if out := l.Next(nil); len(out) > 0 {
				b.Fatal(out)
			}
		}
	}
}
