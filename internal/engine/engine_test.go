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
	"github.com/moonsail/moonsail/internal/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// published is what the engine has told its publisher.
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

// start runs an engine until the test ends.
func start(t *testing.T) (*Engine, *store.Intake, recorder) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	in := store.NewIntake("test")
	e := New(Options{Intake: in, Ledger: noLedger{}, Log: slog.New(slog.DiscardHandler)})
	r := make(recorder, 16)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx, r) }()
	t.Cleanup(func() { cancel(); <-ended })
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
	require.Eventually(t, func() bool { return e.Snapshot().Len(model.KindService) == 1 }, time.Minute, time.Millisecond)
	require.Empty(t, got, "served before the source had loaded")
	in.Synced("test")
	tables := <-got
	require.NotNil(t, tables[0].State().Get(resource.Cluster, "outbound|80||a.shop.svc.cluster.local"))
}

func TestAChangePublishesTheTablesThatItTouches(t *testing.T) {
	e, in, r := start(t)
	in.Put(service("a", 80))
	in.Synced("test")
	<-r
	tables, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	defer release()
	other, releaseOther, err := e.Bind(context.Background(), proxy("cron", "shop"), nil)
	require.NoError(t, err)
	defer releaseOther()
	require.Same(t, tables[0], other[0], "one namespace, one outbound scope")
	require.NotSame(t, tables[1], other[1])

	in.Put(service("b", 80))
	p := <-r
	require.Equal(t, []string{tables[0].Name()}, p.tables)
	require.Equal(t, p.rev, tables[0].State().Revision)
	require.NotNil(t, tables[0].State().Get(resource.VirtualHost, "80/b.shop.svc.cluster.local:80"))

	again := service("b", 80)
	again.Object.(*model.Service).ResourceVersion = "another version, the same content"
	in.Put(again)
	p = <-r
	require.Empty(t, p.tables, "equal content touches nothing")
}

func TestASidecarMovesProxies(t *testing.T) {
	e, in, r := start(t)
	in.Put(service("a", 80), service("b", 80))
	in.Synced("test")
	<-r
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
	after := <-moved
	require.NotSame(t, before[0], after[0])
	require.NotNil(t, after[0].State().Get(resource.Cluster, "outbound|80||a.shop.svc.cluster.local"))
	require.Nil(t, after[0].State().Get(resource.Cluster, "outbound|80||b.shop.svc.cluster.local"))
	require.Contains(t, (<-r).tables, after[0].Name())
}

func TestIdleScopesAreForgotten(t *testing.T) {
	e, in, _ := start(t)
	in.Synced("test")
	_, release, err := e.Bind(context.Background(), proxy("web", "shop"), nil)
	require.NoError(t, err)
	require.Len(t, e.Scopes(context.Background()), 2)
	release()
	require.NoError(t, e.call(context.Background(), func() { e.closeIdle(time.Now().Add(time.Hour)) }))
	require.Empty(t, e.Scopes(context.Background()))
}

func TestABindThatIsGivenUpLeavesNothing(t *testing.T) {
	e, in, _ := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := e.Bind(ctx, proxy("web", "shop"), nil)
	require.ErrorIs(t, err, context.Canceled)
	in.Synced("test")
	require.Eventually(t, e.Synced, time.Second, time.Millisecond)
	for _, s := range e.Scopes(context.Background()) {
		require.Zero(t, s.Proxies)
	}
}
