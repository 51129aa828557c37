package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/await"
)

// at returns the status of one proxy; zero if no proxy has the name.
func (h *harness) at(rev model.Revision, name string) distribution.ProxySyncStatus {
	for _, w := range h.server.Distribution(&distribution.Query{Revision: rev}) {
		if w.Name == name {
			return w
		}
	}
	return distribution.ProxySyncStatus{}
}

// becomes waits until a proxy has a state.
func (h *harness) becomes(rev model.Revision, name string, want distribution.SyncState) distribution.ProxySyncStatus {
	h.t.Helper()
	var got distribution.ProxySyncStatus
	h.eventually(fmt.Sprintf("%s is %s for revision %d", name, want, rev), func() bool {
		got = h.at(rev, name)
		return got.Position == want
	})
	return got
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func nodeOf(name string) string {
	return "sidecar~10.0.0.2~" + name + ".shop~shop.svc.cluster.local"
}

func TestDistributionDistinguishesProxies(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		other := h.connectAs(nodeOf("app-2"), "")
		other.subscribe(resource.Cluster)
		other.take(resource.Cluster, "c1")

		rev := h.commit(endpoints("c1", "2"))
		r := c.expect(resource.Endpoints, "c1")
		w := h.becomes(rev, "app-1", distribution.StateBehind)
		require.Len(t, w.Reasons, 1)
		require.Equal(t, distribution.CauseUnanswered, w.Reasons[0].Cause)
		require.Equal(t, "EDS", w.Reasons[0].Type)
		require.False(t, w.Reasons[0].Since.IsZero())
		h.becomes(rev, "app-2", distribution.StateNotConcerned)
		c.ack(r)
		require.Equal(t, distribution.ProxySyncStatus{ID: nodeID, Name: "app-1", Namespace: "shop", Position: distribution.StateACKed}, h.becomes(rev, "app-1", distribution.StateACKed))

		bad := h.commit(listener("l1", "bad"))
		c.nack(c.expect(resource.Listener, "l1"), "bad listener")
		w = h.becomes(bad, "app-1", distribution.StateRefused)
		require.Equal(t, []distribution.Reason{{Cause: distribution.CauseRefused, Type: "LDS", Names: []string{"l1"}, Text: "bad listener"}}, w.Reasons)
		require.Equal(t, distribution.StateACKed, h.at(rev, "app-1").Position, "the older change is not what was refused")

		better := h.commit(listener("l1", "better"))
		c.take(resource.Listener, "l1")
		require.False(t, h.becomes(better, "app-1", distribution.StateACKed).Superseded)
		require.True(t, h.becomes(bad, "app-1", distribution.StateACKed).Superseded)
	})
}

func TestDistributionNamesMissingClusters(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		rev := h.commit(edsCluster("c2", "1"), endpoints("c2", "1"), listener("l2", "1"))
		c.take(resource.Cluster, "c2") // and never requests its endpoints
		c.take(resource.Endpoints, "c2")
		var w distribution.ProxySyncStatus
		h.eventually("the listener waits", func() bool {
			w = h.at(rev, "app-1")
			return len(w.Reasons) == 1 && w.Reasons[0].Cause == distribution.CauseWaits
		})
		require.Equal(t, distribution.StateBehind, w.Position)
		require.Equal(t, "LDS", w.Reasons[0].Type)
		require.Equal(t, []string{"c2"}, w.Reasons[0].Names)
		c.subscribe(resource.Endpoints, "c2")
		c.take(resource.Endpoints, "c2")
		c.take(resource.Listener, "l2")
		h.becomes(rev, "app-1", distribution.StateACKed)
	})
}

// TestDistributionOfEndpointsBeforeTheirCluster changes the endpoints of a cluster that a proxy was not sent yet, because it does
// not answer. It subscribes to them later, so it is behind, not unconcerned.
func TestDistributionOfEndpointsBeforeTheirCluster(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(edsCluster("c1", "2"))
		r := c.expect(resource.Cluster, "c1")
		c.take(resource.Endpoints, "c1") // they follow their cluster
		h.commit(edsCluster("c2", "1"), endpoints("c2", "1"))
		rev := h.commit(endpoints("c2", "2"))
		h.commit(endpoints("c1", "2"))
		c.take(resource.Endpoints, "c1") // the stream has seen all changes
		require.Equal(t, distribution.StateBehind, h.at(rev, "app-1").Position)
		c.ack(r)
		c.take(resource.Cluster, "c2")
		c.take(resource.Endpoints, "c2")
		c.subscribe(resource.Endpoints, "c2")
		c.take(resource.Endpoints, "c2")
		h.becomes(rev, "app-1", distribution.StateACKed)
	})
}

func TestDistributionReportsUnreadResponses(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		var big []table.Update
		for i := range 2000 {
			big = append(big, edsCluster(fmt.Sprint("big", i), strings.Repeat("x", 1000)))
		}
		first := h.commit(append(big, endpoints("big1", "1"))...)
		stopped := h.connectPaused(nodeOf("stopped"), "")
		stopped.subscribe(resource.Cluster)
		stopped.subscribe(resource.Endpoints, "big1") // more than the connection accepts
		h.eventually("it does not read", func() bool {
			w := h.at(first, "stopped")
			return len(w.Reasons) == 2 && w.Reasons[0].Cause == distribution.CauseUnread && w.Reasons[1].Cause == distribution.CauseUnread
		})
		rev := h.commit(edsCluster("big1", "2"))
		require.Equal(t, distribution.CauseUnread, h.becomes(rev, "stopped", distribution.StateBehind).Reasons[0].Cause)
		h.eventually("it has noticed the change", func() bool {
			p, ok := h.server.Proxy("stopped.shop")
			return ok && p.Unread && p.OldestPending == rev
		})
	})
}

func TestDistributionRemembersDisconnectedProxies(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		had := h.commit(endpoints("c1", "2"))
		c.take(resource.Endpoints, "c1")
		h.becomes(had, "app-1", distribution.StateACKed)
		rev := h.commit(endpoints("c1", "3"))
		c.expect(resource.Endpoints, "c1")
		c.cancel()
		w := h.becomes(rev, "app-1", distribution.StateDisconnected)
		require.Equal(t, distribution.CauseDisconnected, w.Reasons[0].Cause)
		require.Len(t, h.server.Disconnected(), 1)
		require.Equal(t, had, h.server.Disconnected()[0].Settled)
		last := h.server.LastStates()
		require.Len(t, last, 1)
		require.Equal(t, ProxyDisconnected, last[0].Judge())
		require.Equal(t, had, last[0].Settled)
		require.True(t, slices.ContainsFunc(last[0].Types, func(ts TypeState) bool { return ts.Type == "EDS" && !ts.InFlightSince.IsZero() }), "it had not answered")
		for _, w := range h.server.Distribution(&distribution.Query{Revision: had}) {
			require.NotEqual(t, "app-1", w.Name, "it had that one")
		}

		again := h.connect("")
		again.subscribe(resource.Cluster)
		again.take(resource.Cluster, "c1")
		require.Empty(t, h.server.Disconnected())
		again.subscribe(resource.Endpoints, "c1")
		r := again.expect(resource.Endpoints, "c1")
		h.becomes(rev, "app-1", distribution.StateBehind)
		again.ack(r)
		h.becomes(rev, "app-1", distribution.StateACKed)
	})
}

// TestDisconnectingProxiesAreAlwaysListed checks that a proxy is listed at the moment when its last stream reports its end. The
// drain asks for the proxies of a revision then.
func TestDisconnectingProxiesAreAlwaysListed(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		var rev model.Revision
		seen := make(chan distribution.SyncState, 1)
		h.observer.gone = func() { seen <- h.at(rev, "app-1").Position }
		c := h.warm("")
		rev = h.commit(endpoints("c1", "2"))
		c.expect(resource.Endpoints, "c1")
		c.cancel()
		require.Equal(t, distribution.StateDisconnected, await.From(t, seen))
	})
}

// watcher calls a function while a proxy connects: when it is bound and has no stream, and when it has one that has handled
// no request. Both are also what the server calls Learned and Meter for.
type watcher struct {
	learned
	unmetered
	look func()
}

func (w *watcher) Known(context.Context, *model.Proxy) Known {
	w.look()
	return Known{}
}

func (w *watcher) Connected(_ string, delta int) {
	if delta > 0 {
		w.look()
	}
}

// TestReconnectingProxiesAreAlwaysListed: a proxy counts as disconnected until it has listed clusters.
func TestReconnectingProxiesAreAlwaysListed(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		w := &watcher{look: func() {}}
		h := newHarness(t, on, Options{Learned: w, Meter: w})
		h.out = table.NewOnDemand("out", nil)
		h.commit(edsCluster("c1", "1"), endpoints("c1", "1"), listener("l1", "1"))
		c := h.part()
		had := has(h, resource.Endpoints, "c1")
		rev := h.commit(endpoints("c1", "2"))
		c.expect(resource.Endpoints, "c1")
		c.cancel()
		h.becomes(rev, "app-1", distribution.StateDisconnected)

		seen := make(chan distribution.SyncState, 2)
		w.look = func() {
			if len(h.server.Disconnected()) != 1 {
				t.Error("it counts as connected")
			}
			seen <- h.at(rev, "app-1").Position
		}
		c = h.connect("").capable()
		c.resume(resource.Cluster, has(h, resource.Cluster, "c1"))
		require.Equal(t, distribution.StateDisconnected, await.From(t, seen), "it is bound")
		require.Equal(t, distribution.StateDisconnected, await.From(t, seen), "it has a stream")
		h.becomes(rev, "app-1", distribution.StateBehind)
		require.Empty(t, h.server.Disconnected())
		c.resume(resource.Endpoints, had, "c1")
		c.take(resource.Endpoints, "c1")
		h.becomes(rev, "app-1", distribution.StateACKed)
	})
}

// ruleOf returns the key of a DestinationRule.
func ruleOf(name string) model.Key {
	return model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: name}
}

// madeFrom returns an update of a resource that is made from an object.
func madeFrom(k model.Key, u table.Update) table.Update {
	u.Origins = model.OriginsOf(k)
	return u
}

// TestDistributionOfEarlierChanges: a proxy that connects after a change receives it with
// everything else. The origins decide which resources count.
func TestDistributionOfEarlierChanges(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.rev = 7
		h.commit(edsCluster("c1", "1"), madeFrom(ruleOf("c2"), edsCluster("c2", "1")), endpoints("c1", "1"), listener("l1", "1"))
		c := h.connect("")
		c.subscribe(resource.Cluster)
		r := c.expect(resource.Cluster, "c1", "c2")
		about := &distribution.Query{Revision: 3, Object: ruleOf("c2")}
		require.Equal(t, distribution.StateBehind, h.server.Distribution(about)[0].Position)
		c.ack(r)
		h.eventually("the proxy has it", func() bool { return h.server.Distribution(about)[0].Position == distribution.StateACKed })
		nobody := &distribution.Query{Revision: 3, Object: ruleOf("other")}
		require.Equal(t, distribution.StateNotConcerned, h.server.Distribution(nobody)[0].Position)
	})
}

// TestDistributionOfPartOfABatch: changes by other objects of the same batch do not count, for
// connected and disconnected proxies.
func TestDistributionOfPartOfABatch(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		rev := h.commit(madeFrom(ruleOf("c1"), endpoints("c1", "2")))
		c.expect(resource.Endpoints, "c1")
		about := func(object, selects string) *distribution.Query {
			return &distribution.Query{Revision: rev, Object: ruleOf(object), Shared: true, Selects: func(p *model.Proxy) bool { return p.Name == selects }}
		}
		h.becomes(rev, "app-1", distribution.StateBehind)
		require.Equal(t, distribution.StateBehind, h.server.Distribution(about("c1", "app-1"))[0].Position)
		require.Equal(t, distribution.StateNotConcerned, h.server.Distribution(about("other", "app-1"))[0].Position)
		other := h.connectAs("sidecar~10.0.0.2~app-2.shop~shop.svc.cluster.local", "")
		other.subscribe(resource.Listener)
		other.take(resource.Listener, "l1")
		c.cancel()
		h.becomes(rev, "app-1", distribution.StateDisconnected)
		require.Len(t, h.server.Distribution(about("c1", "")), 2, "the table is known: it changed by the object")
		require.Len(t, h.server.Distribution(about("other", "app-1")), 1, "the table is known: it did not change by the object")
		other.cancel()
		h.eventually("both are disconnected", func() bool { return len(h.server.Disconnected()) == 2 })
		require.Len(t, h.server.Distribution(about("c1", "app-1")), 1, "the table is not known any more: the object decides")
		require.Empty(t, h.server.Distribution(about("c1", "app-3")))
	})
}

// TestDisconnectedProxiesKeepLittle: one proxy that connects and disconnects keeps one entry, without its
// metadata, and proxies with many labels leave fewer of them.
func TestDisconnectedProxiesKeepLittle(t *testing.T) {
	var d disconnectedProxies
	large := strings.Repeat("x", maxKept)
	labeled := func(id string) *stream {
		return &stream{proxy: &model.Proxy{ID: id, Labels: map[string]string{"app": large}, Metadata: map[string]string{"KEY": large}}}
	}
	for range 3 {
		d.add(labeled("flapping"), ProxyState{ID: "flapping"}, noon)
	}
	require.Equal(t, 1, d.order.Len())
	require.Nil(t, d.all()[0].proxy.Metadata)
	for i := range maxDisconnected {
		d.add(labeled(fmt.Sprint(i)), ProxyState{Types: []TypeState{{Held: []Held{{Message: large}}}}}, noon)
	}
	require.LessOrEqual(t, d.bytes, maxDisconnectedBytes)
	require.Equal(t, fmt.Sprint(maxDisconnected-1), d.all()[d.order.Len()-1].ID)
	for i := range maxDisconnected {
		d.back(fmt.Sprint(i))
	}
	require.Zero(t, d.bytes)
}

func TestDisconnectedProxiesAreBounded(t *testing.T) {
	var d disconnectedProxies
	st := &stream{proxy: &model.Proxy{}}
	for i := range 3 * maxDisconnected {
		st.proxy = &model.Proxy{ID: fmt.Sprint(i)}
		d.add(st, ProxyState{}, noon)
		d.back("unknown")
		require.Zero(t, d.settled("unknown"))
	}
	require.Len(t, d.all(), maxDisconnected)
	require.Equal(t, fmt.Sprint(2*maxDisconnected), d.all()[0].ID)
	for range 5 * maxDisconnected { // the proxy connects and disconnects
		st.proxy = &model.Proxy{ID: "flapping"}
		d.add(st, ProxyState{}, noon)
		d.back("flapping")
	}
	require.LessOrEqual(t, d.order.Len(), maxDisconnected)
	st.proxy = &model.Proxy{ID: "later"}
	d.add(st, ProxyState{}, noon.Add(2*rememberFor))
	require.Len(t, d.all(), 1)
}
