package modelcheck

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/randommesh"
)

// plane is a control plane: the real parts of the pipeline, without sources.
type plane struct {
	intake   *store.Intake
	engine   *engine.Engine
	server   *server.Server
	changes  *changelog.Log
	port     server.PortServer
	listener *bufconn.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu     sync.Mutex                // guards what follows
	tables map[string][]*table.Table // all tables that a proxy was bound to, by node ID
	bound  map[string][]*table.Table // those that it is bound to now
	states map[*table.Table][]*table.State
}

// startPlane starts a control plane whose source has loaded objects.
func startPlane(objects map[model.Key]model.Object, sharding derive.Sharding) *plane {
	log := slog.New(slog.DiscardHandler)
	p := &plane{intake: store.NewIntake("model"), tables: map[string][]*table.Table{}, bound: map[string][]*table.Table{}, states: map[*table.Table][]*table.State{}}
	p.changes = changelog.New(0, log, changelog.NewMetrics())
	p.engine = engine.New(engine.Options{
		Mesh: randommesh.Mesh(), Intake: p.intake, Recorder: p.changes, Removed: p.changes.Removed, Log: log,
		Sharding: sharding, Workers: 2, IdleGroup: 20 * time.Second,
	})
	p.server = server.New(p, p.changes, log, server.Options{Senders: 2})
	p.listener = bufconn.Listen(256 << 10)
	p.port = p.server.NewPortServer(server.TransportGRPC, server.Port{Authorize: func(context.Context, *server.Peer, *model.Proxy) error { return nil }})
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.running.Go(func() { p.changes.Run(ctx) })
	p.running.Go(func() { p.engine.Run(ctx, p) })
	p.running.Go(func() { _ = p.port.Serve(p.listener) })
	for _, o := range sorted(objects) {
		p.intake.Put(store.Event{Key: o.Metadata().Key, Object: o, Observed: time.Now()})
	}
	p.intake.Synced("model")
	synctest.Wait()
	return p
}

func sorted(objects map[model.Key]model.Object) (out []model.Object) {
	for _, k := range slices.SortedFunc(maps.Keys(objects), func(a, b model.Key) int { return cmpKey(a, b) }) {
		out = append(out, objects[k])
	}
	return out
}

// stop ends the control plane. Its streams end before.
func (p *plane) stop() {
	p.port.Stop()
	p.server.Close()
	p.cancel()
	p.running.Wait()
	_ = p.listener.Close()
}

// Bind implements server.Binder.
func (p *plane) Bind(ctx context.Context, proxy *model.Proxy, rebind func([]*table.Table)) ([]*table.Table, func(), error) {
	tables, release, err := p.engine.Bind(ctx, proxy, func(t []*table.Table) {
		p.note(proxy.ID, t)
		rebind(t)
	})
	p.note(proxy.ID, tables)
	return tables, release, err
}

// AddShards implements server.Binder.
func (p *plane) AddShards(ctx context.Context, proxy *model.Proxy, routeConfigs []string) error {
	return p.engine.AddShards(ctx, proxy, routeConfigs)
}

// Publish implements engine.Publisher: it records the states of the tables.
func (p *plane) Publish(rev model.Revision, tables []*table.Table) {
	p.note("", tables)
	p.server.Publish(rev, tables)
}

// note records tables of a proxy and their current states.
func (p *plane) note(proxy string, tables []*table.Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if proxy != "" {
		p.bound[proxy] = tables
	}
	for _, t := range tables {
		if proxy != "" && !slices.Contains(p.tables[proxy], t) {
			p.tables[proxy] = append(p.tables[proxy], t)
		}
		s := t.State()
		if list := p.states[t]; len(list) == 0 || list[len(list)-1] != s {
			p.states[t] = append(list, s)
		}
	}
}

// history returns the states of each table that a proxy was bound to.
func (p *plane) history(proxy string) (out [][]*table.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tables[proxy] {
		out = append(out, p.states[t])
	}
	return out
}

// newest returns the states of the tables that a proxy is bound to.
func (p *plane) newest(proxy string) (out []*table.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.bound[proxy] {
		out = append(out, t.State())
	}
	return out
}

// forget drops all but the newest states.
func (p *plane) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t, list := range p.states {
		p.states[t] = list[len(list)-1:]
	}
}
