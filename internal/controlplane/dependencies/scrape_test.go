package dependencies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// proxies are connected proxies with counters of calls.
type proxies struct {
	list []server.ProxyState

	mu    sync.Mutex                    // guards the fields below
	calls map[string]map[string]float64 // by proxy and host; nil: the agent does not answer
	asked []string
}

func (p *proxies) Proxies() []server.ProxyState { return p.list }

func (p *proxies) Metrics(_ context.Context, id, _ string) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, id)
	calls := p.calls[id]
	if calls == nil {
		return nil, errors.New("no agent")
	}
	text := "# TYPE istio_requests_total counter\n"
	for host, n := range calls {
		text += fmt.Sprintf("istio_requests_total{reporter=\"source\",destination_service=%q,response_code=\"200\"} %g\n", host, n)
	}
	return []byte(text + "istio_requests_total{reporter=\"destination\",destination_service=\"" + ratings + "\"} 1\n"), nil
}

func (p *proxies) add(names ...string) {
	for _, name := range names {
		proxy := proxyOf("web")
		proxy.ID, proxy.Name = name, name
		p.list = append(p.list, server.ProxyState{ID: name, Name: name, Namespace: proxy.Namespace, Proxy: proxy})
	}
}

// takeAsked returns the proxies that were asked since the last call.
func (p *proxies) takeAsked() []string {
	out := p.asked
	p.asked = nil
	slices.Sort(out)
	return out
}

// shop has the services reviews and ratings, and the Pods of two workloads.
func shop(objects ...model.Object) func() *store.Snapshot {
	s := store.New()
	service := func(name string, ports ...model.ServicePort) *model.Service {
		return &model.Service{
			Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: name}},
			Hostname: model.Host(name + ".shop.svc.cluster.local"), Ports: ports, Selector: map[string]string{"app": name},
		}
	}
	objects = append(objects, service("reviews", model.ServicePort{Number: 80, TargetPort: 8080, Protocol: model.ProtocolHTTP}), service("ratings"))
	var events []store.Event
	for _, o := range objects {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
	}
	s.Apply(events)
	return s.Snapshot
}

func TestScraper(t *testing.T) {
	w := newWorld()
	p := &proxies{calls: map[string]map[string]float64{}}
	p.add("web-1", "web-2")
	extra := *p.list[0].Proxy
	extra.Extensions = true
	p.list = append(p.list, server.ProxyState{ID: "web-1", Proxy: &extra}, server.ProxyState{ID: "old"})
	s := &Scraper{Memory: w.Memory, Proxies: p, Agents: p, Snapshot: shop()}
	round := func(hours int) {
		w.at = w.at.Add(time.Duration(hours) * time.Hour)
		s.round(t.Context())
	}
	p.calls["web-1"] = map[string]float64{reviews: 100, "example.com": 5, "unknown": 7}
	round(1)
	require.Equal(t, []string{"web-1"}, p.takeAsked(), "one proxy of each workload")
	require.Equal(t, "shop/web/web: "+reviews+":0 0-0\n", w.text(), "hosts outside the mesh are not learned")
	require.Zero(t, s.usages()[WorkloadOf(p.list[0].Proxy)].measured)

	round(1)
	require.Equal(t, []string{"web-2"}, p.takeAsked(), "in turn, also if one does not answer")
	round(1)
	require.Equal(t, []string{"web-1"}, p.takeAsked())
	require.Equal(t, "shop/web/web: "+reviews+":0 2-2\n", w.text(), "no call since")

	p.calls["web-1"][reviews] = 100 + 4*3600
	round(1)
	round(1)
	require.Equal(t, "shop/web/web: "+reviews+":0 4-0\n", w.text())
	got := s.usages()[WorkloadOf(p.list[0].Proxy)]
	require.Equal(t, 2, got.proxies)
	require.Equal(t, 1, got.measured)
	require.InDelta(t, 2*4.0/2, got.rates[reviews], 0.001, "two proxies, of which one made 4 calls a second in one of two hours")

	p.calls["web-1"] = map[string]float64{ratings: 1} // it has started again
	p.list = p.list[:1]
	round(1)
	require.Equal(t, "shop/web/web: "+ratings+":0 0-0 "+reviews+":0 5-1\n", w.text())
	p.list = nil
	round(1)
	require.Empty(t, s.usages())
}

// TestScraperTakesTurns has more workloads than a round asks.
func TestScraperTakesTurns(t *testing.T) {
	w := newWorld()
	p := &proxies{}
	for i := range maxAsked + 50 {
		proxy := proxyOf(fmt.Sprintf("web%03d", i))
		proxy.ID, proxy.ServiceAccount = proxy.Name, proxy.Name
		p.list = append(p.list, server.ProxyState{ID: proxy.ID, Proxy: proxy})
	}
	s := &Scraper{Memory: w.Memory, Proxies: p, Agents: p, Snapshot: shop()}
	s.round(t.Context())
	require.Len(t, p.takeAsked(), maxAsked)
	s.round(t.Context())
	second := p.takeAsked()
	require.Contains(t, second, "web349-1")
	require.Len(t, slices.Compact(second), maxAsked)
}

// TestScraperOfManyNames has a service account whose proxies report many workloads.
func TestScraperOfManyNames(t *testing.T) {
	w := newWorld()
	p := &proxies{}
	add := func(name, account string) {
		proxy := proxyOf(name)
		proxy.ID, proxy.ServiceAccount = proxy.Name, account
		p.list = append(p.list, server.ProxyState{ID: proxy.ID, Proxy: proxy})
	}
	for i := range 3 * maxOfAccount {
		add(fmt.Sprintf("web%03d", i), "web")
	}
	add("zoo", "zoo")
	s := &Scraper{Memory: w.Memory, Proxies: p, Agents: p, Snapshot: shop()}
	all := map[string]int{}
	for range 3 {
		w.at = w.at.Add(time.Minute)
		s.round(t.Context())
		asked := p.takeAsked()
		require.Len(t, asked, maxOfAccount+1)
		for _, id := range asked {
			all[id]++
		}
	}
	require.Len(t, all, 3*maxOfAccount+1, "they take turns")
	require.Equal(t, 3, all["zoo-1"], "the others do not wait for them")
}

// TestRatesOfSilentAgents forgets the calls of an agent that no longer answers.
func TestRatesOfSilentAgents(t *testing.T) {
	w := newWorld()
	p := &proxies{calls: map[string]map[string]float64{"web-1": {reviews: 1}}}
	p.add("web-1")
	s := &Scraper{Memory: w.Memory, Proxies: p, Agents: p, Snapshot: shop()}
	for _, n := range []float64{1, 61} {
		p.calls["web-1"][reviews] = n
		s.round(t.Context())
		w.at = w.at.Add(time.Minute)
	}
	web := WorkloadOf(p.list[0].Proxy)
	require.Equal(t, 1, s.usages()[web].measured)
	delete(p.calls, "web-1")
	s.round(t.Context())
	require.Zero(t, s.usages()[web].measured)
	require.Empty(t, s.usages()[web].rates)
}

// TestMeasuredCalls checks errors and mutual TLS of the calls between the last two answers, of all proxies of a workload.
func TestMeasuredCalls(t *testing.T) {
	w := newWorld()
	p := &metricsOf{}
	p.add("web-1", "web-2")
	s := &Scraper{Memory: w.Memory, Proxies: p, Agents: p, Snapshot: shop()}
	text := func(answered, plain, refused int) {
		p.text = fmt.Sprintf(`istio_requests_total{reporter="source",destination_service=%[1]q,request_protocol="http",response_code="200",response_flags="-",destination_principal="spiffe://td/ns/shop/sa/reviews"} %[2]d
istio_requests_total{reporter="source",destination_service=%[1]q,request_protocol="http",response_code="200",response_flags="-",destination_principal="unknown"} %[3]d
istio_requests_total{reporter="source",destination_service=%[1]q,request_protocol="http",response_code="503",response_flags="UH",destination_principal="unknown"} %[4]d
istio_tcp_connections_opened_total{reporter="source",destination_service=%[5]q,request_protocol="tcp",response_flags="UF,URX"} %[4]d
`, reviews, answered, plain, refused, ratings)
	}
	for _, n := range []int{1, 2} {
		text(100*n, 0, 1000)
		for range 2 {
			w.at = w.at.Add(time.Minute)
			s.round(t.Context())
		}
	}
	report := (&Reporter{Memory: w.Memory, Scraper: s, Snapshot: shop()}).Report(Question{})
	require.Len(t, report.Workloads, 1)
	require.Equal(t, "web-1.shop", report.Workloads[0].Proxy)
	measured := map[model.Host]*Measured{}
	for i := range report.Workloads[0].Calls {
		c := &report.Workloads[0].Calls[i]
		measured[c.Host] = c.Measured
	}
	require.Equal(t, &Measured{Seconds: 120, Requests: 200, Reached: 200, Mutual: 200, TLS: MutualAll}, measured[reviews], "not what was before")
	require.Nil(t, measured[ratings])

	text(200, 90, 1010)
	w.at = w.at.Add(time.Minute)
	s.round(t.Context()) // the other one has its last answer
	got := s.usages()[WorkloadOf(p.list[0].Proxy)].counts
	require.Equal(t, &Measured{
		Seconds: 120, Requests: 200, Errors: 10, ErrorShare: 0.05, Failures: map[string]float64{"503 UH": 10}, Reached: 190, Mutual: 100, TLS: MutualSome,
	}, got[reviews], "of both proxies")
	require.Equal(t, &Measured{Seconds: 120, Requests: 10, Errors: 10, ErrorShare: 1, Failures: map[string]float64{"UF,URX": 10}}, got[ratings])
}

// metricsOf are connected proxies with the same metrics.
type metricsOf struct {
	proxies
	text string
}

func (p *metricsOf) Metrics(context.Context, string, string) ([]byte, error) {
	return []byte(p.text), nil
}
