package engine

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Compile returns all resources that a proxy would receive for these objects, by type and in the order of
// their names, and what could not be translated. It starts no goroutine.
func Compile(mesh *model.Mesh, objects []model.Object, p *model.Proxy) (map[resource.Type][]*resource.Encoded, []Failure) {
	return CompileSharded(mesh, objects, p, derive.Sharding{}, "")
}

// CompileSharded is Compile with Options.Sharding, for a proxy that had some route configurations in shards.
func CompileSharded(mesh *model.Mesh, objects []model.Object, p *model.Proxy, sharding derive.Sharding, kept derive.ShardedRoutes) (map[resource.Type][]*resource.Encoded, []Failure) {
	tables, failures := CompileTables(mesh, objects, p, sharding, kept)
	out := map[resource.Type][]*resource.Encoded{}
	for _, t := range tables {
		for typ := range resource.NumTypes {
			for entry := range t.State().All(typ) {
				out[typ] = append(out[typ], entry.Resource())
			}
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b *resource.Encoded) int { return strings.Compare(a.Name, b.Name) })
	}
	return out, failures
}

// CompileTables is CompileSharded, but returns the tables with the resources, and so their origins.
func CompileTables(mesh *model.Mesh, objects []model.Object, p *model.Proxy, sharding derive.Sharding, kept derive.ShardedRoutes) ([]*table.Table, []Failure) {
	c := compiled(mesh, objects, sharding)
	return c.tables(p, kept), c.Failures()
}

// Compiled is a set of objects, to be translated for any number of proxies. It is for one goroutine.
type Compiled struct{ engine *Engine }

// CompileAll reads the objects. Translation follows, for each proxy. It starts no goroutine.
func CompileAll(mesh *model.Mesh, objects []model.Object) *Compiled {
	return compiled(mesh, objects, derive.Sharding{})
}

func compiled(mesh *model.Mesh, objects []model.Object, sharding derive.Sharding) *Compiled {
	e := New(Options{Sharding: sharding, Mesh: mesh, Intake: store.NewIntake(), Recorder: noRecorder{}, Log: slog.New(slog.DiscardHandler), Workers: 1})
	e.publisher = noRecorder{}
	events := make([]store.Event, len(objects))
	for i, o := range objects {
		events[i] = store.Event{Key: o.Metadata().Key, Object: o}
	}
	e.batch(events)
	return &Compiled{e}
}

// Tables returns the tables with what a proxy would receive. Proxies that are alike share tables.
func (c *Compiled) Tables(p *model.Proxy) []*table.Table { return c.tables(p, "") }

func (c *Compiled) tables(p *model.Proxy, kept derive.ShardedRoutes) []*table.Table {
	reply := make(chan []*table.Table, 1)
	c.engine.bind(&binding{proxy: p, kept: kept}, reply)
	return <-reply
}

// Failures returns what could not be translated for the proxies so far.
func (c *Compiled) Failures() []Failure { return c.engine.failures.sorted() }

// PatchMatches is Engine.PatchMatches for the proxies so far.
func (c *Compiled) PatchMatches() []PatchMatch { return c.engine.groups.patchMatches() }

// Snapshot returns the objects.
func (c *Compiled) Snapshot() *store.Snapshot { return c.engine.store.Snapshot() }

// noRecorder records and publishes nothing.
type noRecorder struct{}

func (noRecorder) Begin(model.Revision, []changelog.ChangedObject, time.Time) {}
func (noRecorder) Mark(model.Revision, changelog.Stage, time.Time)            {}
func (noRecorder) Resources(model.Revision, int, int64)                       {}
func (noRecorder) Publish(model.Revision, []*table.Table)                     {}
