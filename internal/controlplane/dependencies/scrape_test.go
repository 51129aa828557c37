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
	require.Zero(t, s.rates()[WorkloadOf(p.list[0].Proxy)].measured)

	round(1)
	require.Equal(t, []string{"web-2"}, p.takeAsked(), "in turn, also if one does not answer")
	round(1)
	require.Equal(t, []string{"web-1"}, p.takeAsked())
	require.Equal(t, "shop/web/web: "+reviews+":0 2-2\n", w.text(), "no call since")

	p.calls["web-1"][reviews] = 100 + 4*3600
	round(1)
	round(1)
	require.Equal(t, "shop/web/web: "+reviews+":0 4-0\n", w.text())
	got := s.rates()[WorkloadOf(p.list[0].Proxy)]
	require.Equal(t, 2, got.proxies)
	require.Equal(t, 1, got.measured)
	require.InDelta(t, 2*4.0/2, got.hosts[reviews], 0.001, "two proxies, of which one made 4 calls a second in one of two hours")

	p.calls["web-1"] = map[string]float64{ratings: 1} // it has started again
	p.list = p.list[:1]
	round(1)
	require.Equal(t, "shop/web/web: "+ratings+":0 0-0 "+reviews+":0 5-1\n", w.text())
	p.list = nil
	round(1)
	require.Empty(t, s.rates())
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

// TestRatesOfSilentAgents forgets the rates of an agent that no longer answers.
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
	require.Equal(t, 1, s.rates()[web].measured)
	delete(p.calls, "web-1")
	s.round(t.Context())
	require.Zero(t, s.rates()[web].measured)
	require.Empty(t, s.rates()[web].hosts)
}
