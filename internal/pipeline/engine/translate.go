package engine

import (
	"maps"
	"slices"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate"
	"github.com/moonsail/moonsail/internal/pipeline/translate/cluster"
	"github.com/moonsail/moonsail/internal/pipeline/translate/listener"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
	"github.com/moonsail/moonsail/internal/pipeline/translate/security"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// batchMemo lets proxy groups share the encoding of equal endpoints. It lives for one batch.
type batchMemo struct {
	mu        sync.Mutex // guards endpoints
	endpoints map[*ir.Endpoints]*resource.Encoded
}

// translate turns deltas into updates of tables, several proxy groups at the same time.
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
		e.failures.replace(results[i])
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

// translation is the translation of one proxy group's delta.
type translation struct {
	key     derive.GroupKey
	intern  *resource.Interner
	table   *table.Table // as it is before the batch
	patches *envoyfilter.Set
	// failures are those before the batch. Nothing changes them while groups are translated.
	failures *failures
	// patchedBy are the EnvoyFilters that changed the resource in progress.
	patchedBy model.OriginList
	// repatched: the delta replaces the patches of the group.
	repatched bool
	// replugged: the delta replaces the list of plugins whose modules no agent fetches.
	replugged bool
	// encodeCluster encodes clusters that may be on demand; nil: none is.
	encodeCluster func(name string, m proto.Message) (*resource.Encoded, error)
	updates       []table.Update
	failed        []Failure
}

// translateGroup translates the types in the order in which Envoy needs them.
func (e *Engine) translateGroup(k derive.GroupKey, d *derive.Delta, memo *batchMemo) *translation {
	g := e.groups.open[k]
	t := &translation{key: k, intern: e.intern, table: g.table, failures: e.failures}
	if d == nil {
		return t
	}
	t.replacePatches(g, d)
	t.replaceUnfetched(d)
	t.clusters(d.Clusters)
	t.endpoints(d.Endpoints, memo)
	t.removeKeptEndpoints(d)
	put(t, resource.Secret, d.Secrets, messageOf(security.Secret))
	put(t, resource.Scope, d.Scopes, messageOf(route.Scope))
	put(t, resource.Listener, d.Listeners, t.listener)
	put(t, resource.RouteConfig, d.RouteConfigs, t.routeConfig)
	put(t, resource.VHDSRouteConfig, d.RouteConfigs, t.vhdsRouteConfig)
	put(t, resource.VirtualHost, d.VirtualHosts, t.virtualHost)
	t.names(d.Names)
	put(t, resource.Bootstrap, d.Bootstraps, messageOf(envoyfilter.Bootstrap))
	put(t, resource.Extension, d.Extensions, messageOf(listener.Extension))
	return t
}

// messageOf adapts a function that returns one type of message.
func messageOf[V any, M proto.Message](f func(*V) (M, error)) func(*V) (proto.Message, error) {
	return func(v *V) (proto.Message, error) { return f(v) }
}

// put translates the IR values of one type, in the order of their names. A nil value, or a nil message,
// removes the resource.
func put[V any, P interface {
	*V
	MadeFrom() *model.Origins
}](t *translation, typ resource.Type, values map[string]*V, f func(*V) (proto.Message, error)) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		if v == nil {
			t.add(typ, name, nil, nil)
			continue
		}
		t.patchedBy.Drop(0)
		m, err := f(v)
		switch {
		case err != nil:
			t.fail(typ, name, notTranslated, err)
		case m == nil:
			t.add(typ, name, nil, nil)
		default:
			t.encode(typ, name, m, P(v).MadeFrom().Union(t.patchedBy.Since(0)))
		}
	}
}

// clusters translates clusters; those on demand have another encoding.
func (t *translation) clusters(values map[string]*ir.Cluster) {
	if t.key.OnDemand() {
		t.encodeCluster = func(name string, m proto.Message) (*resource.Encoded, error) {
			if c, ok := m.(*clusterv3.Cluster); ok && values[name].OnDemand && c.GetEdsClusterConfig().GetServiceName() == name {
				return resource.EncodeOnDemand(name, c, cluster.SetEndpointsName)
			}
			return resource.Encode(resource.Cluster, name, m)
		}
	}
	put(t, resource.Cluster, values, t.cluster)
}

func (t *translation) encode(typ resource.Type, name string, m proto.Message, from *model.Origins) {
	encode := encoded
	if typ == resource.Cluster && t.encodeCluster != nil {
		encode = func(_ resource.Type, name string, m proto.Message) (*resource.Encoded, error) {
			return t.encodeCluster(name, m)
		}
	}
	enc, err := encode(typ, name, m)
	if err != nil {
		t.fail(typ, name, notTranslated, err)
		return
	}
	t.add(typ, name, t.intern.Intern(typ, enc), from)
}

func encoded(typ resource.Type, name string, m proto.Message) (enc *resource.Encoded, err error) {
	routeConfigs, scoped := listener.RouteConfigs(m)
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

// endpoints encodes equal endpoints of several proxy groups once.
func (t *translation) endpoints(values map[string]*ir.Endpoints, memo *batchMemo) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		if v == nil {
			if !t.keepsCluster(name) {
				t.add(resource.Endpoints, name, nil, nil)
			}
			continue
		}
		memo.mu.Lock()
		enc := memo.endpoints[v]
		memo.mu.Unlock()
		if enc != nil {
			t.add(resource.Endpoints, name, enc, v.Origins)
			continue
		}
		value, err := cluster.EncodeEndpoints(v)
		if err != nil {
			t.fail(resource.Endpoints, name, notTranslated, err)
			continue
		}
		enc = resource.EncodeBytes(resource.Endpoints, name, value)
		enc.Host = string(v.Host)
		enc = t.intern.Intern(resource.Endpoints, enc)
		t.add(resource.Endpoints, name, enc, v.Origins)
		memo.mu.Lock()
		memo.endpoints[v] = enc
		memo.mu.Unlock()
	}
}

// keepsCluster reports whether the last valid version of a cluster stays in force. Its endpoints then stay, too: without
// them it would refuse all calls.
func (t *translation) keepsCluster(name string) bool {
	return t.table.State().Get(resource.Cluster, name) != nil &&
		slices.ContainsFunc(t.failed, func(f Failure) bool { return f.Type == resource.Cluster.String() && f.Name == name })
}

// removeKeptEndpoints removes endpoints that stayed for a cluster which is replaced now and has none in its new form.
func (t *translation) removeKeptEndpoints(d *derive.Delta) {
	var orphans []string
	for name, c := range d.Clusters {
		if _, told := d.Endpoints[name]; told || c != nil && c.Discovery == ir.DiscoverEDS {
			continue
		}
		if t.table.State().Get(resource.Endpoints, name) != nil && !t.keepsCluster(name) {
			orphans = append(orphans, name)
		}
	}
	slices.Sort(orphans)
	for _, name := range orphans {
		t.add(resource.Endpoints, name, nil, nil)
	}
}

// names encodes name tables, which have no generated message.
func (t *translation) names(values map[string]*ir.Names) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		if v == nil {
			t.add(resource.NameTable, name, nil, nil)
			continue
		}
		encoded := resource.EncodeBytes(resource.NameTable, name, translate.Names(v))
		t.add(resource.NameTable, name, t.intern.Intern(resource.NameTable, encoded), v.Origins)
	}
}

func (t *translation) fail(typ resource.Type, name string, kind failureKind, err error) {
	t.failure(typ.String(), name, kind, err.Error())
}

func (t *translation) failure(typ, name string, kind failureKind, text string) {
	t.failed = append(t.failed, Failure{Group: t.key.String(), Type: typ, Name: name, Error: text, key: t.key, kind: kind})
}
