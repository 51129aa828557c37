package server

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// A proxy that gets clusters on demand asks for them by name on a stream of its own (ClusterDiscoveryService). The stream
// may be one to another control plane than the stream of everything, which may have decided that the proxy gets all
// clusters. So neither depends on the other, nor on the tables. Clusters that a proxy asks for request their endpoints by
// what resource.EndpointsName describes, and each delta stream of a proxy that can ask accepts such names.

// endpointNames are the names by which a proxy requests endpoints, by cluster. The ledger knows only clusters. nil: the
// proxy has used only the names of clusters.
type endpointNames struct {
	byCluster map[string][]string // the oldest first, at most maxEndpointNames
	aliases   int                 // names that are not their cluster's
	bytes     int                 // of aliases
}

// maxEndpointNames bounds the names of a cluster, each of which costs a copy of its endpoints in every response. Envoy needs
// two while a cluster warms, and a third until it unsubscribes from the form before.
const maxEndpointNames = 4

// renames returns what replaces names and versions in admitted requests of a type; nil: nothing does.
func (st *stream) renames(typeURL []byte) func(*ledger.Request) (aliases, bytes int) {
	switch {
	case st.asked && string(typeURL) == resource.ClusterURL:
		return st.listsAsked
	case st.proxy.OnDemand && string(typeURL) == resource.EndpointsURL:
		return st.requested
	}
	return nil
}

// listsAsked replaces the versions of clusters that the proxy lists by those in the tables. A form that is not the one of
// resource.Encoded.Asked must be sent again, so its version is cleared.
func (st *stream) listsAsked(r *ledger.Request) (aliases, bytes int) {
	for i := range r.Initial {
		nv := &r.Initial[i]
		for _, t := range st.tables {
			e := t.State().GetBytes(resource.Cluster, nv.Name)
			if e == nil {
				continue
			}
			switch asked := e.Resource().Asked(); {
			case asked.Version == e.Version:
			case asked.Version == string(nv.Version):
				nv.Version = []byte(e.Version)
			case e.Version == string(nv.Version):
				nv.Version = nil
			}
			break
		}
	}
	return 0, 0
}

// requested replaces the names of endpoints in an admitted request by those of their clusters. The ledger sends endpoints
// again if the proxy requests them by a further name. It returns the aliases that the stream stores, and their bytes.
func (st *stream) requested(r *ledger.Request) (aliases, bytes int) {
	if st.names == nil && !slices.ContainsFunc(r.Subscribe, isEndpointsName) && !slices.ContainsFunc(r.Unsubscribe, isEndpointsName) {
		return 0, 0
	}
	if st.names == nil {
		st.names = &endpointNames{byCluster: map[string][]string{}}
	}
	st.names.rename(r)
	return st.names.aliases, st.names.bytes
}

func (n *endpointNames) rename(r *ledger.Request) {
	lists := map[string]int{} // how many names of a cluster the request subscribes to, less those with a version
	for i, name := range r.Subscribe {
		cluster := resource.ClusterOfEndpoints(name)
		lists[string(cluster)]++
		n.add(string(cluster), string(name))
		r.Subscribe[i] = cluster
	}
	r.Unsubscribe = slices.DeleteFunc(r.Unsubscribe, func(name []byte) bool {
		return n.drop(string(resource.ClusterOfEndpoints(name)), string(name))
	})
	for i := range r.Unsubscribe {
		r.Unsubscribe[i] = resource.ClusterOfEndpoints(r.Unsubscribe[i])
	}
	for i := range r.Initial {
		r.Initial[i].Name = resource.ClusterOfEndpoints(r.Initial[i].Name)
		lists[string(r.Initial[i].Name)]--
	}
	r.Initial = slices.DeleteFunc(r.Initial, func(nv ledger.NameVersion) bool { return lists[string(nv.Name)] > 0 })
}

func isEndpointsName(name []byte) bool { return len(resource.ClusterOfEndpoints(name)) < len(name) }

// of returns the names of a cluster. The caller must not change them, nor keep them.
func (n *endpointNames) of(cluster string) []string {
	if n == nil {
		return nil
	}
	return n.byCluster[cluster]
}

// add adds a name, in place of the oldest if there are maxEndpointNames.
func (n *endpointNames) add(cluster, name string) {
	list := n.byCluster[cluster]
	if slices.Contains(list, name) {
		return
	}
	if len(list) == maxEndpointNames {
		n.count(cluster, list[0], -1)
		list = slices.Delete(list, 0, 1)
	}
	n.byCluster[cluster] = append(list, name)
	n.count(cluster, name, 1)
}

// drop removes a name, and reports whether others of the cluster remain.
func (n *endpointNames) drop(cluster, name string) bool {
	list := n.byCluster[cluster]
	if i := slices.Index(list, name); i >= 0 {
		n.count(cluster, name, -1)
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(n.byCluster, cluster)
		return false
	}
	n.byCluster[cluster] = list
	return true
}

// count counts a name if it is an alias.
func (n *endpointNames) count(cluster, name string, by int) {
	if name != cluster {
		n.aliases, n.bytes = n.aliases+by, n.bytes+by*len(name)
	}
}

// naming changes the names of resources in responses.
type naming struct {
	asked  bool // clusters that do not exist are replaced, not removed
	names  *endpointNames
	tables []*table.Table
	warm   map[string]bool // scopes whose routes the proxy loads at once
}

// naming returns how the names of responses change; nil: not at all. The stream's lock is held.
func (st *stream) naming() *naming {
	switch {
	case st.asked:
		return &naming{asked: true}
	case st.names != nil || st.protocol == ledger.Delta && len(st.tables) > 0 && st.tables[0].OnDemand():
		return &naming{names: st.names, tables: st.tables, warm: st.warm}
	}
	return nil
}

// of returns the names by which the proxy requested a cluster's endpoints, and the one by which it will request them for
// the newest form of the cluster.
func (n *naming) of(cluster string) []string {
	newest := cluster
	for _, t := range n.tables {
		if e := t.State().Get(resource.Cluster, cluster); e != nil {
			newest = resource.EndpointsName(cluster, e.Version)
			break
		}
	}
	list := n.names.of(cluster)
	if slices.Contains(list, newest) {
		return list
	}
	return append(slices.Clone(list), newest)
}

// renames reports whether the names of a response change.
func (n *naming) renames(r *ledger.Response) bool {
	return n != nil && !n.asked && r.Type == resource.Endpoints
}

// removed returns the names that a response removes.
func (n *naming) removed(r *ledger.Response) []string {
	switch {
	case n == nil:
	case n.asked:
		return nil
	case n.renames(r):
		var out []string
		for _, cluster := range r.Removed {
			out = append(out, n.of(cluster)...)
		}
		return out
	}
	return r.Removed
}

// appendEndpoints appends endpoints under each of their names.
func (n *naming) appendEndpoints(parts [][]byte, b *table.Batch) [][]byte {
	for _, e := range b.Entries {
		for _, name := range n.of(e.Name) {
			parts = append(parts, e.Resource().Renamed(name).DeltaField())
		}
	}
	return parts
}

// asks reports whether a response has clusters that the proxy asked for.
func (n *naming) asks(r *ledger.Response) bool {
	return n != nil && n.asked && r.Type == resource.Cluster
}

// appendAsked appends clusters in the form in which they request endpoints by a name with their version.
func appendAsked(parts [][]byte, b *table.Batch) [][]byte {
	for _, e := range b.Entries {
		parts = append(parts, e.Resource().Asked().DeltaField())
	}
	return parts
}

// warms reports whether a response has scopes whose routes the proxy may load at once.
func (n *naming) warms(r *ledger.Response) bool {
	return n != nil && len(n.warm) > 0 && r.Type == resource.Scope
}

// appendScopes appends scopes.
func (n *naming) appendScopes(parts [][]byte, b *table.Batch) [][]byte {
	for _, e := range b.Entries {
		r := e.Resource()
		if n.warm[e.Name] {
			r = r.Eager()
		}
		parts = append(parts, r.DeltaField())
	}
	return parts
}

// appendAbsent appends a cluster without endpoints in place of each that does not exist.
func (n *naming) appendAbsent(parts [][]byte, r *ledger.Response) [][]byte {
	if n == nil || !n.asked {
		return parts
	}
	for _, name := range r.Removed {
		parts = append(parts, resource.AbsentCluster(name).DeltaField())
	}
	return parts
}

// askedState is how far a stream has come on which a proxy asks for clusters. The proxy's other stream reports both: a
// revision counts once for a proxy.
type askedState struct {
	published model.Revision // the newest that was published to the stream
	settled   model.Revision
	newest    model.Revision // of the tables when the last response was sent
	refused   model.Revision // of the tables when the last response was refused
}

// settledUpTo returns the revision up to which the stream has settled. Later ones that were not published to it do not
// concern it.
func (a *askedState) settledUpTo() model.Revision {
	if a.settled >= a.published {
		return ^model.Revision(0)
	}
	return a.settled
}

// askedState returns the state of the proxy's stream for clusters; zero: it has none here.
func (st *stream) askedState() askedState {
	asks := st.asking()
	if asks == nil {
		return askedState{}
	}
	asks.inbox.mu.Lock()
	defer asks.inbox.mu.Unlock()
	return asks.inbox.asked
}

// askedPublished returns the newest revision that was published to a stream for clusters.
func (st *stream) askedPublished() model.Revision {
	st.inbox.mu.Lock()
	defer st.inbox.mu.Unlock()
	return st.inbox.asked.published
}

// settleAsked records how far a stream for clusters has come, and wakes the streams that settle with it if that makes a
// difference. The stream's lock is held.
func (st *stream) settleAsked() {
	settled, refused := st.ledger.Settle()
	if refused.Upto > 0 {
		st.pending.refused.Upto = st.pending.newest
	}
	in := &st.inbox
	in.mu.Lock()
	next := askedState{in.asked.published, settled, st.pending.newest, st.pending.refused.Upto}
	differs := in.asked != next
	in.asked = next
	in.mu.Unlock()
	if differs {
		wakeAll(st.following())
	}
}

// following returns the streams of everything that settle with a stream on which a proxy asks. The caller must not change
// the list.
func (st *stream) following() []*stream {
	if list := st.followers.Load(); list != nil {
		return *list
	}
	return nil
}

func wakeAll(list []*stream) {
	for _, st := range list {
		st.wake()
	}
}

// wake makes the sender of a stream settle what it can.
func (st *stream) wake() {
	st.inbox.mu.Lock()
	closed := st.inbox.closed
	if !closed {
		st.mu.news.Store(true)
	}
	st.inbox.mu.Unlock()
	if !closed && st.sender.enqueue(st) {
		st.sender.kick()
	}
}

// asksSince is the first release of Envoy that was tried with clusters on demand.
var asksSince = release{1, 40}

// canAsk reports whether a proxy can ask for clusters by name.
func canAsk(protocol ledger.Protocol, p *model.Proxy, agent string) bool {
	return protocol == ledger.Delta && p.Type == model.ProxySidecar && agent == "envoy" && asksSince.reaches(p.EnvoyVersion)
}

// admitAsked checks the proxy of a stream for clusters on demand.
func (st *stream) admitAsked() error {
	if p := st.proxy; st.asked && !p.OnDemand {
		return status.Errorf(codes.Unimplemented, "%s: it cannot ask for clusters by name", p)
	}
	return nil
}

// visible returns those of a proxy's tables that a stream reads. Clusters on demand are outbound.
func (st *stream) visible(tables []*table.Table) []*table.Table {
	if st.asked && len(tables) > 1 {
		return tables[:1]
	}
	return tables
}

// OnDemand implements distribution.Proxies.
func (s *Server) OnDemand(id string) (out []distribution.Intended) {
	st := s.find(id)
	if st == nil {
		return nil
	}
	asked := map[string]bool{}
	if asks := st.asking(); asks != nil {
		of, _ := asks.intended(resource.Cluster)
		for i := range of {
			asked[of[i].Entry.Name] = true
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil || st.closed {
		return nil
	}
	for _, t := range st.tables {
		if !t.OnDemand() {
			continue
		}
		state := t.State()
		for _, typ := range []resource.Type{resource.VHDSRouteConfig, resource.Cluster, resource.Endpoints} {
			for e := range state.All(typ) {
				has := typ == resource.Cluster && asked[e.Name] || st.ledger.Status(typ, e.Name) != ledger.NotSubscribed
				if !has && comesOnDemand(state, typ, e.Name) {
					out = append(out, distribution.Intended{Type: typ, Entry: e, State: state})
				}
			}
		}
	}
	return out
}

// comesOnDemand reports whether proxies ask for a resource when a call needs it.
func comesOnDemand(s *table.State, typ resource.Type, name string) bool {
	if typ == resource.VHDSRouteConfig {
		return routeshard.IsOnDemand(name)
	}
	c := s.Get(resource.Cluster, name)
	return c != nil && c.IsOnDemand()
}
