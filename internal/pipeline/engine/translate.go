package engine

import (
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Failure is a view that could not be translated, as a whole or in part. What the proxies had stays in force, unless
// it says otherwise.
type Failure struct {
	Scope string `json:"scope"`
	Type  string `json:"type"`
	Name  string `json:"name"`
	Error string `json:"error"`

	key    derive.GroupKey
	patch  bool // the resource is served, but for a patch of an EnvoyFilter
	plugin bool // it is served, but a plugin is what its failStrategy says
	routes bool // it is served, but some of its routes answer with an error
}

// batchMemo lets scopes share one encoding of one view. It lives for one batch.
type batchMemo struct {
	mu        sync.Mutex // guards endpoints
	endpoints map[*ir.Endpoints]*resource.Encoded
}

// translate turns deltas into updates of tables, scopes side by side.
func (e *Engine) translate(deltas map[derive.GroupKey]*derive.Delta) map[derive.GroupKey][]table.Update {
	memo := &batchMemo{endpoints: map[*ir.Endpoints]*resource.Encoded{}}
	keys := slices.Collect(maps.Keys(deltas))
	results := make([]*translation, len(keys))
	each(len(keys), e.opts.Workers, func(i int) {
		results[i] = e.translateGroup(keys[i], deltas[keys[i]], memo)
	})
	out := make(map[derive.GroupKey][]table.Update, len(keys))
	for i, k := range keys {
		out[k] = results[i].updates
		e.noteFailures(results[i])
	}
	return out
}

// each calls f for 0..n-1, at most workers at a time, and waits for all.
func each(n, workers int, f func(int)) {
	if n == 1 || workers == 1 {
		for i := range n {
			f(i)
		}
		return
	}
	limit := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for i := range n {
		limit <- struct{}{}
		wg.Go(func() {
			f(i)
			<-limit
		})
	}
	wg.Wait()
}

// translation is the work on one scope.
type translation struct {
	key     derive.GroupKey
	intern  *resource.Interner
	table   *table.Table // as it is before the batch
	patches *envoyfilter.Set
	// patchedBy are the EnvoyFilters that changed the resource under way.
	patchedBy model.OriginList
	// repatched: other patches than before are in force.
	repatched bool
	// replugged: other plugins than before have modules that nobody fetches.
	replugged bool
	updates   []table.Update
	failed    []Failure
}

func (e *Engine) translateGroup(k derive.GroupKey, d *derive.Delta, memo *batchMemo) *translation {
	t := &translation{key: k, intern: e.intern, table: e.groups[k].table}
	if d == nil {
		return t
	}
	t.replacePatches(e.groups[k], d)
	t.replaceUnfetched(d)
	put(t, resource.Cluster, d.Clusters, t.cluster)
	t.endpoints(d.Endpoints, memo)
	put(t, resource.Secret, d.Secrets, messageOf(translate.Secret))
	put(t, resource.Scope, d.Scopes, messageOf(translate.Scope))
	put(t, resource.Listener, d.Listeners, t.listener)
	put(t, resource.RouteConfig, d.RouteConfigs, t.routeConfig)
	put(t, resource.RouteConfigShell, d.RouteConfigs, t.shell)
	put(t, resource.VirtualHost, d.VirtualHosts, t.virtualHost)
	t.names(d.Names)
	put(t, resource.Bootstrap, d.Bootstraps, messageOf(envoyfilter.Bootstrap))
	put(t, resource.Extension, d.Extensions, messageOf(translate.Extension))
	return t
}

// messageOf makes a function of views to one of messages.
func messageOf[V any, M proto.Message](f func(*V) (M, error)) func(*V) (proto.Message, error) {
	return func(v *V) (proto.Message, error) { return f(v) }
}

// put translates the views of one type, in the order of their names.
func put[V any, P interface {
	*V
	MadeFrom() *model.Origins
}](t *translation, typ resource.Type, views map[string]*V, f func(*V) (proto.Message, error)) {
	for _, name := range slices.Sorted(maps.Keys(views)) {
		v := views[name]
		if v == nil {
			t.add(typ, name, nil, nil)
			continue
		}
		t.patchedBy.Drop(0)
		m, err := f(v)
		switch {
		case err != nil:
			t.fail(typ, name, err)
		case m == nil:
			t.add(typ, name, nil, nil)
		default:
			t.encode(typ, name, m, P(v).MadeFrom().Union(t.patchedBy.Since(0)))
		}
	}
}

func (t *translation) encode(typ resource.Type, name string, m proto.Message, from *model.Origins) {
	enc, err := encoded(typ, name, m)
	if err != nil {
		t.fail(typ, name, err)
		return
	}
	t.add(typ, name, t.intern.Intern(typ, enc), from)
}

func encoded(typ resource.Type, name string, m proto.Message) (enc *resource.Encoded, err error) {
	routeConfigs, scoped := translate.RouteConfigs(m)
	if scoped {
		enc, err = resource.EncodeScoped(name, m)
	} else {
		enc, err = resource.Encode(typ, name, m)
	}
	if err == nil {
		enc.RouteConfigs = routeConfigs
	}
	return enc, err
}

func (t *translation) add(typ resource.Type, name string, enc *resource.Encoded, from *model.Origins) {
	t.updates = append(t.updates, table.Update{Type: typ, Name: name, Resource: enc, Origins: from})
}

func (t *translation) endpoints(views map[string]*ir.Endpoints, memo *batchMemo) {
	for _, name := range slices.Sorted(maps.Keys(views)) {
		v := views[name]
		if v == nil {
			t.add(resource.Endpoints, name, nil, nil)
			continue
		}
		memo.mu.Lock()
		enc := memo.endpoints[v]
		memo.mu.Unlock()
		if enc != nil {
			t.add(resource.Endpoints, name, enc, v.Origins)
			continue
		}
		value, err := translate.EncodeEndpoints(v)
		if err != nil {
			t.fail(resource.Endpoints, name, err)
			continue
		}
		enc = t.intern.Intern(resource.Endpoints, resource.EncodeBytes(resource.Endpoints, name, value))
		t.add(resource.Endpoints, name, enc, v.Origins)
		memo.mu.Lock()
		memo.endpoints[v] = enc
		memo.mu.Unlock()
	}
}

// names are encoded by their own package: there is no message of theirs to import.
func (t *translation) names(views map[string]*ir.Names) {
	for _, name := range slices.Sorted(maps.Keys(views)) {
		v := views[name]
		if v == nil {
			t.add(resource.NameTable, name, nil, nil)
			continue
		}
		encoded := resource.EncodeBytes(resource.NameTable, name, translate.Names(v))
		t.add(resource.NameTable, name, t.intern.Intern(resource.NameTable, encoded), v.Origins)
	}
}

func (t *translation) fail(typ resource.Type, name string, err error) {
	t.failure(typ.String(), name, err.Error())
}

// failure notes one. Until the next one it may be given what kind it is of.
func (t *translation) failure(typ, name, text string) *Failure {
	t.failed = append(t.failed, Failure{Scope: t.key.String(), Type: typ, Name: name, Error: text, key: t.key})
	return &t.failed[len(t.failed)-1]
}

type failureKey struct {
	scope     derive.GroupKey
	typ, name string
}

// noteFailures keeps the list of what cannot be translated, and tells of new ones.
func (e *Engine) noteFailures(t *translation) {
	if t.repatched {
		e.forget(t.key, envoyFilters)
	}
	if t.replugged {
		e.forget(t.key, wasmPlugins)
	}
	if len(e.failures) > 0 {
		for _, u := range t.updates {
			delete(e.failures, failureKey{t.key, u.Type.String(), u.Name})
		}
	}
	noted := map[failureKey]bool{}
	for _, f := range t.failed {
		e.note(f, noted)
		what := "resource not translated; the last good one stays in force"
		switch {
		case f.patch:
			what = "patch of an EnvoyFilter left out"
		case f.plugin:
			what = "module of a WasmPlugin is not fetched"
		case f.routes:
			what = "routes not translated; they answer with an error"
		}
		e.log.Warn(what, "scope", f.Scope, "type", f.Type, "name", f.Name, "error", f.Error)
	}
}

// note puts a failure in the place of older ones of its resource, and beside those of the same translation.
func (e *Engine) note(f Failure, noted map[failureKey]bool) {
	k := failureKey{f.key, f.Type, f.Name}
	if noted[k] {
		f.Error = e.failures[k].Error + "; " + f.Error
	}
	e.failures[k], noted[k] = f, true
}

func (e *Engine) forgetFailures(k derive.GroupKey) {
	maps.DeleteFunc(e.failures, func(f failureKey, _ Failure) bool { return f.scope == k })
}

// countResources counts a table's entries by type, whole route configurations once.
func countResources(s *table.State) map[string]int {
	out := map[string]int{}
	for _, t := range []resource.Type{resource.Cluster, resource.Endpoints, resource.Secret, resource.Scope, resource.Listener, resource.RouteConfig, resource.VirtualHost, resource.NameTable, resource.Extension, resource.Bootstrap} {
		out[t.String()] = s.Len(t)
	}
	return out
}
