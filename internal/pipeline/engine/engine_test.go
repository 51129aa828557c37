package engine

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/await"
)

// published is one call of the engine to its publisher.
type published struct {
	rev    model.Revision
	tables []string
}

type recorder chan published

func (r recorder) Publish(rev model.Revision, tables []*table.Table) {
	p := published{rev: rev}
	for _, t := range tables {
		p.tables = append(p.tables, t.Name())
	}
	r <- p
}

// start runs an engine until the end of the test.
func start(t *testing.T, change ...func(*Options)) (*Engine, *store.Intake, recorder) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	in := store.NewIntake("test")
	opts := Options{Intake: in, Recorder: noRecorder{}, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&opts)
	}
	e := New(opts)
	r := make(recorder, 16)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx, r) }()
	t.Cleanup(func() { cancel(); await.From(t, ended) })
	return e, in, r
}

func service(name string, port uint32) store.Event {
	s := &model.Service{
		Meta:       model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: name}, ResourceVersion: fmt.Sprint(name, port)},
		Hostname:   model.ResolveHost(name, "shop", "cluster.local"),
		Addresses:  []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")},
		Ports:      []model.ServicePort{{Name: "http", Number: port, Protocol: model.ProtocolHTTP}},
		Resolution: model.ResolutionStatic,
	}
	return store.Event{Key: s.Key, Object: s, Observed: time.Now()}
}

func proxy(name, ns string) *model.Proxy {
	return &model.Proxy{Type: model.ProxySidecar, Name: name, Namespace: ns, IPs: []string{"10.1.0.1"}, Labels: map[string]string{"app": name}, DNSDomain: ns + ".svc.cluster.local"}
}

func TestBindWaitsForSources(t *testing.T) {
	e, in, _ := start(t)
	in.Put(service("a", 80))
	got := make(chan []*table.Table, 1)
	go func() {
		tables, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
		if err == nil {
			defer release()
		}
		got <- tables
	}()
	waiting := func() []bool { return make([]bool, len(e.bindings.waiting)) }
	require.Eventually(t, func() bool { return len(ask(context.Background(), e, waiting)) == 1 }, time.Minute, time.Millisecond)
	require.Empty(t, got, "served before the source had loaded")
	require.Zero(t, e.Snapshot().Len(model.KindService), "processed before the source had loaded")
	in.Synced("test")
	tables := await.From(t, got)
	require.NotNil(t, tables[0].State().Get(resource.Cluster, "outbound|80||a.shop.svc.cluster.local"))
}

// TestEndpointsHaveHost checks that endpoints have their service as a field. The xDS server finds the
// holders of removed endpoints by it.
func TestEndpointsHaveHost(t *testing.T) {
	e, in, r := start(t)
	in.Put(service("a", 80))
	in.Synced("test")
	await.From(t, r)
	tables, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	defer release()
	entry := tables[0].State().Get(resource.Endpoints, "outbound|80||a.shop.svc.cluster.local")
	require.NotNil(t, entry)
	require.Equal(t, "a.shop.svc.cluster.local", entry.Resource().Host)
}

func TestChangePublishesTheTablesThatDiffer(t *testing.T) {
	e, in, r := start(t)
	in.Put(service("a", 80))
	in.Synced("test")
	await.From(t, r)
	tables, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	defer release()
	other, releaseOther, err := e.Bind(context.Background(), proxy("cron", "shop"), nil)
	require.NoError(t, err)
	defer releaseOther()
	require.Same(t, tables[0], other[0], "one outbound group for a namespace")
	require.NotSame(t, tables[1], other[1])

	in.Put(service("b", 80))
	p := await.From(t, r)
	require.Equal(t, []string{tables[0].Name()}, p.tables)
	require.Equal(t, p.rev, tables[0].State().Revision)
	require.NotNil(t, tables[0].State().Get(resource.VirtualHost, "80/b.shop.svc.cluster.local:80"))

	again := service("b", 80)
	again.Object.(*model.Service).ResourceVersion = "another version, the same content"
	in.Put(again)
	p = await.From(t, r)
	require.Empty(t, p.tables, "equal content touches nothing")
}

func TestSidecarMovesProxies(t *testing.T) {
	e, in, r := start(t)
	in.Put(service("a", 80), service("b", 80))
	in.Synced("test")
	await.From(t, r)
	moved := make(chan []*table.Table, 1)
	before, release, err := e.Bind(context.Background(), proxy("web", "shop"), func(tables []*table.Table) { moved <- tables })
	require.NoError(t, err)
	defer release()

	s := &model.Sidecar{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: "shop", Name: "web"}},
		Selector: map[string]string{"app": "web"},
		Egress:   []model.EgressListener{{Hosts: []model.HostSelector{{Namespace: "shop", Host: "a.shop.svc.cluster.local"}}}},
	}
	in.Put(store.Event{Key: s.Key, Object: s})
	after := await.From(t, moved)
	require.NotSame(t, before[0], after[0])
	require.NotNil(t, after[0].State().Get(resource.Cluster, "outbound|80||a.shop.svc.cluster.local"))
	require.Nil(t, after[0].State().Get(resource.Cluster, "outbound|80||b.shop.svc.cluster.local"))
	require.Contains(t, await.From(t, r).tables, after[0].Name())
}

func TestIdleGroupsAreClosed(t *testing.T) {
	e, in, _ := start(t)
	in.Synced("test")
	_, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	require.Len(t, e.ProxyGroups(context.Background()), 2)
	release()
	require.NoError(t, e.call(context.Background(), func() { e.groups.closeIdle(time.Now().Add(time.Hour)) }))
	require.Empty(t, e.ProxyGroups(context.Background()))
}

// waiting counts the streams that wait for the sources.
func waiting(t *testing.T, e *Engine) int {
	t.Helper()
	n := ask(context.Background(), e, func() []int { return []int{len(e.bindings.waiting)} })
	require.Len(t, n, 1)
	return n[0]
}

func TestCancelledBindLeavesNothing(t *testing.T) {
	e, in, _ := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, _, err := e.Bind(ctx, proxy("web", "shop"), nil)
		ended <- err
	}()
	require.Eventually(t, func() bool { return waiting(t, e) == 1 }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, await.From(t, ended), context.Canceled)
	require.Eventually(t, func() bool { return waiting(t, e) == 0 }, time.Minute, time.Millisecond)
	in.Synced("test")
	require.Eventually(t, e.Synced, time.Minute, time.Millisecond)
	require.Empty(t, e.ProxyGroups(context.Background()))
}

// TestFirstBatchPrecedesBinds checks the order of loading: a proxy that connects between the last
// source's Synced and the first batch must not receive an empty mesh.
func TestFirstBatchPrecedesBinds(t *testing.T) {
	in := store.NewIntake("test")
	e := New(Options{Intake: in, Recorder: noRecorder{}, Log: slog.New(slog.DiscardHandler)})
	e.publisher = noRecorder{}
	reply := make(chan []*table.Table, 1)
	in.Put(service("a", 80))
	in.Synced("test")
	e.bindOrWait(&binding{proxy: proxy("web", "shop")}, reply)
	require.Empty(t, reply)
	e.take()
	require.NotNil(t, await.From(t, reply)[0].State().Get(resource.Cluster, "outbound|80||a.shop.svc.cluster.local"))
}

func TestReleaseCountsOnce(t *testing.T) {
	e, in, _ := start(t)
	in.Synced("test")
	_, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	_, other, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	defer other()
	release()
	release()
	for _, s := range e.ProxyGroups(context.Background()) {
		require.Equal(t, 1, s.Proxies, s.Name)
	}
}

func routeWithStatus(code uint32) store.Event {
	v := &model.VirtualService{
		Meta:  model.Meta{Key: model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "a"}, ResourceVersion: fmt.Sprint(code)},
		Hosts: []model.Host{"a.shop.svc.cluster.local"}, Gateways: []string{model.GatewayMesh},
		HTTP: []model.HTTPRoute{{DirectResponse: &model.DirectResponse{Status: code}}},
	}
	return store.Event{Key: v.Key, Object: v}
}

// TestUntranslatableResourceKeepsLastVersion follows one broken virtual host: its old resource stays, it
// is listed for each proxy group that has it, and other changes are distributed. Correcting or removing it
// removes it from the list.
func TestUntranslatableResourceKeepsLastVersion(t *testing.T) {
	const name = "80/a.shop.svc.cluster.local:80"
	e, in, r := start(t)
	in.Put(service("a", 80), routeWithStatus(200))
	in.Synced("test")
	await.From(t, r)
	tables, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	defer release()
	// A second proxy group with the name, but not the key, of the first.
	none := proxy("web", "shop")
	none.Interception = model.InterceptNone
	_, releaseOther, err := e.Bind(context.Background(), none, nil)
	require.NoError(t, err)
	defer releaseOther()
	good := tables[0].State().Get(resource.VirtualHost, name)
	require.NotNil(t, good)

	in.Put(routeWithStatus(9), service("b", 80))
	await.From(t, r)
	require.Same(t, good, tables[0].State().Get(resource.VirtualHost, name))
	require.NotNil(t, tables[0].State().Get(resource.Cluster, "outbound|80||b.shop.svc.cluster.local"))
	failures := e.Failures()
	require.Len(t, failures, 2)
	require.Equal(t, name, failures[0].Name)
	require.Contains(t, failures[0].Error, "directResponse.status 9")

	in.Put(routeWithStatus(204))
	await.From(t, r)
	require.NotEqual(t, good.Version, tables[0].State().Get(resource.VirtualHost, name).Version)
	require.Empty(t, e.Failures())

	in.Put(routeWithStatus(9))
	await.From(t, r)
	require.Len(t, e.Failures(), 2)
	gone := service("a", 80)
	gone.Object = nil
	in.Put(gone, store.Event{Key: routeWithStatus(0).Key})
	await.From(t, r)
	require.Empty(t, e.Failures())
	require.Nil(t, tables[0].State().Get(resource.VirtualHost, name))
}

func TestClosedGroupHasNoFailures(t *testing.T) {
	e, in, r := start(t)
	in.Put(service("a", 80), routeWithStatus(9))
	in.Synced("test")
	await.From(t, r)
	_, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	require.Len(t, e.Failures(), 1)
	release()
	require.NoError(t, e.call(context.Background(), func() { e.groups.closeIdle(time.Now().Add(time.Hour)) }))
	require.Empty(t, e.ProxyGroups(context.Background()))
	require.Empty(t, e.Failures())
}

// TestFailuresAreKnownWhileTheEngineWorks checks that a busy engine does not look as if it had no failures.
func TestFailuresAreKnownWhileTheEngineWorks(t *testing.T) {
	e, in, r := start(t)
	in.Put(service("a", 80), routeWithStatus(9))
	in.Synced("test")
	await.From(t, r)
	_, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	defer release()
	busy := make(chan struct{})
	require.NoError(t, e.call(context.Background(), func() { <-busy }))
	require.Len(t, e.Failures(), 1)
	close(busy)
}

// TestRekeyMovesTheProxiesConcerned checks that a Sidecar of one namespace moves only proxies of that
// namespace, and a Sidecar of the root namespace moves all proxies whose namespace has no Sidecar.
func TestRekeyMovesTheProxiesConcerned(t *testing.T) {
	e, in, r := start(t)
	in.Synced("test")
	moved := make(chan string, 8)
	for _, ns := range []string{"shop", "bank"} {
		_, release, err := e.Bind(context.Background(), proxy("web", ns), func([]*table.Table) { moved <- ns })
		require.NoError(t, err)
		defer release()
	}
	put := func(ns string, o bool) {
		s := &model.Sidecar{Meta: model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: ns, Name: "default"}}}
		ev := store.Event{Key: s.Key}
		if o {
			ev.Object = s
		}
		in.Put(ev)
		await.From(t, r)
	}
	put("bank", true)
	require.Equal(t, "bank", await.From(t, moved))
	put("istio-system", true)
	require.Equal(t, "shop", await.From(t, moved))
	put("bank", false)
	require.Equal(t, "bank", await.From(t, moved))
	require.Empty(t, moved)
}

// TestChangedObjectsMoved checks that a change records whether the object was for other proxies before.
func TestChangedObjectsMoved(t *testing.T) {
	of := func(app string) model.Object {
		return &model.AuthorizationPolicy{Selector: map[string]string{"app": app}}
	}
	got := changedObjects([]store.Change{
		{New: of("web")}, {Old: of("web")}, {Old: of("web"), New: of("web")}, {Old: of("web"), New: of("api")},
	})
	for i, want := range []bool{false, false, false, true} {
		require.Equal(t, want, got[i].Moved, i)
	}
}
