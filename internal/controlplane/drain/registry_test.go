package drain

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
)

func TestAnswersWhenEveryProxyHasACKed(t *testing.T) {
	f := newFixture(t)
	f.streams = 2
	f.setStatus(at("a", distribution.StateACKed), at("b", distribution.StateACKed), at("c", distribution.StateNotConcerned))
	replies := f.ask(agentapi.DeregisterRequest{})
	await.From(t, f.notices.intake.Ready())
	rev := f.batch()
	again := f.ask(agentapi.DeregisterRequest{}) // another request for the same
	f.Changes.Settled(rev-1, rev, distribution.ACKed, time.Now())
	require.Empty(t, replies, "one proxy has not answered")
	f.Changes.Settled(rev-1, rev, distribution.ACKed, time.Now())
	for _, c := range []<-chan reply{replies, again} {
		r := await.From(t, c)
		require.NoError(t, r.err)
		require.Equal(t, 2, r.ACKed)
		require.Empty(t, r.Lacking)
		require.EqualValues(t, rev, r.Revision)
	}
	require.Equal(t, 1, f.noticeCount())
	d := f.store.Snapshot().Get(model.Key{Kind: model.KindDrainNotice, Namespace: "shop", Name: "web-1"}).(*model.DrainNotice)
	require.Equal(t, []string{"10.1.0.1"}, d.Addresses)
}

func TestWhoIsWaitedFor(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	for name, tc := range map[string]struct {
		who     distribution.ProxySyncStatus
		streams int
		lacking []agentapi.LackingProxy
		acked   int
		waited  bool
	}{
		"stalled": {at("a", distribution.StateBehind, distribution.Reason{Cause: distribution.CauseUnanswered, Type: "EDS"}), 1,
			[]agentapi.LackingProxy{{Proxy: "a.shop", Position: string(distribution.StateBehind), Reason: "unanswered EDS"}}, 0, true},
		"disconnected": {at("a", distribution.StateDisconnected, distribution.Reason{Cause: distribution.CauseDisconnected, Since: long}), 0, nil, 0, false},
		"refused": {at("a", distribution.StateRefused, distribution.Reason{Cause: distribution.CauseRefused, Type: "EDS", Text: "bad"}), 0,
			[]agentapi.LackingProxy{{Proxy: "a.shop", Position: string(distribution.StateRefused), Reason: "refused EDS: bad"}}, 0, false},
		"unknown address": {at("a", distribution.StateNotConcerned), 0, nil, 0, false},
		"itself":          {distribution.ProxySyncStatus{ID: node, Position: distribution.StateBehind}, 0, nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.streams = tc.streams
			f.setStatus(tc.who)
			f.run()
			wait := time.Hour // more than the bound, without delay
			if tc.waited {
				wait = time.Second
			}
			r := await.From(t, f.ask(agentapi.DeregisterRequest{WaitMillis: wait.Milliseconds()}))
			require.NoError(t, r.err)
			require.Equal(t, tc.acked, r.ACKed)
			require.Equal(t, len(tc.lacking), r.LackCount)
			require.Equal(t, tc.lacking, r.Lacking)
			require.Equal(t, name == "disconnected", r.Disconnected == 1)
			require.Less(t, r.TookMillis, float64(MaxWait.Milliseconds()), "the bound is for those who are waited for")
		})
	}
}

// TestWaitsForReconnectingProxies checks that a proxy which disconnected a moment ago is waited for until it
// is back and has ACKed.
func TestWaitsForReconnectingProxies(t *testing.T) {
	f := newFixture(t)
	f.started = time.Now().Add(-2 * time.Hour)
	f.ReconnectGrace = time.Hour
	f.run()
	f.setStatus(at("a", distribution.StateDisconnected, distribution.Reason{Cause: distribution.CauseDisconnected, Since: time.Now()}))
	replies := f.ask(agentapi.DeregisterRequest{})
	require.Eventually(t, func() bool { return f.notices.draining("shop", "web-1") && f.Changes.Newest() > 0 }, time.Minute, time.Millisecond)
	calls := func() (counted, polled int) { f.mu.Lock(); defer f.mu.Unlock(); return f.counted, f.polled }
	require.Eventually(t, func() bool { _, polled := calls(); return polled > 0 }, time.Minute, time.Millisecond)
	before, first := calls()
	require.Eventually(t, func() bool { _, polled := calls(); return polled >= first+20 }, time.Minute, time.Millisecond)
	counted, _ := calls()
	require.LessOrEqual(t, counted, before+1, "a count takes the lock of every stream")
	f.setStatus(at("a", distribution.StateBehind))
	require.Empty(t, replies)
	f.setStatus(at("a", distribution.StateACKed))
	require.Equal(t, 1, await.From(t, replies).ACKed)

	// A proxy that drained in order is not waited for.
	f.setStatus(at("web-1", distribution.StateDisconnected, distribution.Reason{Cause: distribution.CauseDisconnected, Since: time.Now()}))
	r := await.From(t, f.ask(agentapi.DeregisterRequest{Node: "sidecar~10.1.0.2~web-2.shop~shop.svc.cluster.local"}))
	require.NoError(t, r.err)
	require.Empty(t, r.Lacking)
}

// TestWaitsForRemovalsOfTheSource checks that a removal of the endpoint by the source, still on its
// way, is waited for.
func TestWaitsForRemovalsOfTheSource(t *testing.T) {
	f := newFixture(t)
	f.streams = 1
	slice := model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "web"}
	f.notices.intake.Put(store.Event{Key: slice, Object: &model.EndpointSlice{Meta: model.Meta{Key: slice}}})
	await.From(t, f.notices.intake.Ready())
	first := f.batch()
	f.Changes.Removed([]changelog.RemovedEndpoint{{Revision: first, Observed: time.Now(), Address: "10.1.0.1"}})
	f.streams = 0
	replies := f.ask(agentapi.DeregisterRequest{})
	await.From(t, f.notices.intake.Ready())
	second := f.batch()
	require.NoError(t, f.Changes.Await(t.Context(), second), "no proxy is concerned")
	require.Never(t, func() bool { return len(replies) > 0 }, 50*time.Millisecond, 5*time.Millisecond)
	f.Changes.Settled(first-1, first, distribution.ACKed, time.Now())
	require.NoError(t, await.From(t, replies).err)
}

func TestWithdrawn(t *testing.T) {
	proxy := func(id, instance string, ips ...string) *model.Proxy {
		p, err := server.ParseID(id)
		require.NoError(t, err)
		p.Instance, p.IPs, p.ServiceAccount = instance, append(p.IPs, ips...), "web"
		return p
	}
	other, evil := "sidecar~10.1.0.7~web-7.shop~shop.svc.cluster.local", "sidecar~10.1.0.8~bad-1.evil~evil.svc.cluster.local"
	for name, tc := range map[string]struct {
		event func(*fixture)
		left  int
	}{
		"the same one connects again":          {func(f *fixture) { f.Connected(proxy(node, "first")) }, 1},
		"the next one by that name":            {func(f *fixture) { f.Connected(proxy(node, "second")) }, 0},
		"another with its address":             {func(f *fixture) { f.Connected(proxy(other, "second", "10.1.0.1")) }, 0},
		"another one":                          {func(f *fixture) { f.Connected(proxy(other, "second")) }, 1},
		"another namespace claims its address": {func(f *fixture) { f.Connected(proxy(evil, "second", "10.1.0.1")) }, 1},
		"another account claims its address": {func(f *fixture) {
			p := proxy(other, "second", "10.1.0.1")
			p.ServiceAccount = "bad"
			f.Connected(p)
		}, 1},
		"another account claims its name": {func(f *fixture) {
			p := proxy(node, "second")
			p.ServiceAccount = "bad"
			f.Connected(p)
		}, 1},
		"another account connects from its address": {func(f *fixture) {
			p := proxy(evil, "second", "10.1.0.1")
			p.ServiceAccount, p.Peer = "bad", "10.1.0.1"
			f.Connected(p)
		}, 0},
		"it stays": {func(f *fixture) {
			require.NoError(t, await.From(t, f.ask(agentapi.DeregisterRequest{Node: node, Instance: "first", Stay: true})).err)
		}, 0},
		"nothing lists it":          {func(f *fixture) { f.sweep(t.Context(), time.Now().Add(time.Minute)) }, 0},
		"nothing lists it any more": {func(f *fixture) { f.sweep(t.Context(), time.Now()) }, 1},
		"it is listed still": {func(f *fixture) {
			f.listed = []string{"10.1.0.1"}
			f.sweep(t.Context(), time.Now().Add(time.Minute))
		}, 1},
		"for too long": {func(f *fixture) {
			f.listed = []string{"10.1.0.1"}
			f.sweep(t.Context(), time.Now().Add(2*time.Hour))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.run()
			require.NoError(t, await.From(t, f.ask(agentapi.DeregisterRequest{Node: node, Instance: "first", ServiceAccount: "web"})).err)
			require.Equal(t, 1, f.noticeCount())
			tc.event(f)
			require.Eventually(t, func() bool { return f.noticeCount() == tc.left }, time.Minute, time.Millisecond)
			require.Equal(t, tc.left == 1, f.notices.draining("shop", "web-1"))
		})
	}
}

// TestNoticesOfOneNamespaceAreBounded checks that a tenant leaves room for others.
func TestNoticesOfOneNamespaceAreBounded(t *testing.T) {
	f := newFixture(t)
	add := func(ns string, i int) error {
		_, _, err := f.notices.add(&model.Proxy{Namespace: ns, Name: fmt.Sprint("p", i)}, time.Now())
		return err
	}
	for i := range maxNoticesOfNamespace {
		require.NoError(t, add("evil", i))
	}
	require.ErrorContains(t, add("evil", -1), "16384 workloads of the namespace evil drain at the same time")
	require.NoError(t, add("shop", 0))
	f.notices.cancel(&model.Proxy{Namespace: "evil", Name: "p0"}, "test")
	require.NoError(t, add("evil", -1))
}

// TestReturned checks which connected proxies show peers that a workload is back.
func TestReturned(t *testing.T) {
	f := newFixture(t)
	drained, err := server.ParseID(node)
	require.NoError(t, err)
	drained.Instance, drained.ServiceAccount = "first", "web"
	for name, c := range map[string]struct {
		by   model.Proxy
		want bool
	}{
		"itself":            {model.Proxy{ID: node, Instance: "first", Namespace: "shop", ServiceAccount: "web"}, false},
		"the next instance": {model.Proxy{ID: node, Instance: "second", Namespace: "shop", ServiceAccount: "web"}, true},
		"another account":   {model.Proxy{ID: node, Instance: "second", Namespace: "shop", ServiceAccount: "bad"}, false},
		"another namespace": {model.Proxy{ID: node, Instance: "second", Namespace: "evil", ServiceAccount: "web"}, false},
		"at its address":    {model.Proxy{ID: node, Instance: "second", Namespace: "evil", Peer: "10.1.0.1"}, true},
	} {
		f.connected = &server.ProxyState{Proxy: &c.by}
		require.Equal(t, c.want, f.returned(drained), name)
	}
}

// TestWithdrawnBeforeItBegan checks that a request gets an error if its notice ends.
func TestWithdrawnBeforeItBegan(t *testing.T) {
	f := newFixture(t)
	replies := f.ask(agentapi.DeregisterRequest{})
	await.From(t, f.notices.intake.Ready()) // and the pipeline does not take it
	require.NoError(t, await.From(t, f.ask(agentapi.DeregisterRequest{Node: node, Instance: "first", Stay: true})).err)
	require.ErrorContains(t, await.From(t, replies).err, "withdrawn")
	f.batch()
	require.Zero(t, f.noticeCount())
}

func TestRefuses(t *testing.T) {
	f := newFixture(t)
	f.connected = &server.ProxyState{Proxy: &model.Proxy{Instance: "second"}}
	f.run()
	for q, want := range map[*agentapi.DeregisterRequest]string{
		{Node: "nonsense"}: "node id", {Node: node, Instance: "first"}: "another instance",
		{Node: node, Instance: "second", Addresses: []string{"here"}}: `address "here"`,
	} {
		require.ErrorContains(t, await.From(t, f.ask(*q)).err, want)
	}
	_, err := f.Deregister(t.Context(), []byte("{"))
	require.ErrorContains(t, err, agentapi.DeregisterMethod)
	require.Zero(t, f.noticeCount())
	require.NoError(t, await.From(t, f.ask(agentapi.DeregisterRequest{Node: node, Instance: "second"})).err)
}

func TestNamesAFew(t *testing.T) {
	f := newFixture(t)
	f.run()
	var many []distribution.ProxySyncStatus
	for i := range 100 {
		many = append(many, at(fmt.Sprint("p", i), distribution.StateRefused))
	}
	f.setStatus(many...)
	r := await.From(t, f.ask(agentapi.DeregisterRequest{}))
	require.Equal(t, 100, r.LackCount)
	require.Len(t, r.Lacking, maxListedProxies)
}
