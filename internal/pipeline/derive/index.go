package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Index finds objects by what others call them. It is changed by the deriving goroutine
// between derivations, and only read during them.
type Index struct {
	base *model.Mesh // that the control plane was started with
	mesh *model.Mesh // with what the cluster says of it

	discovery *discovery
	exports   *exports
	auto      *autoAddresses
	services  map[model.Host][]*model.Service // by precedence, see enlist
	rules     map[model.Host][]*model.DestinationRule
	// backendTLS are policies by the hosts of their targets.
	backendTLS map[model.Host][]*model.BackendTLSPolicy
	routes     map[model.Host][]*model.VirtualService // of the gateway "mesh"
	bound      bound                                  // virtual services of other gateways
	delegate   map[model.Key]*model.VirtualService
	sidecars   map[string]map[model.Key]*model.Sidecar // by namespace
	policies   map[policyKey][]model.Selecting
	keySets    map[string]*model.KeySet // by what they are fetched from
	secrets    map[model.Key]*model.Secret
	disabling  int // policies that switch mutual TLS off somewhere

	endpoints     *endpointIndex
	labels        labelUse
	proxies       proxyUse
	localityUsage localityUsage
	// credentials counts the destination rules and Sidecars that name some, by namespace.
	credentials map[string]int
	pulls       map[string]int // plugins that name credentials for registries, likewise
}

// NewIndex makes an empty index.
func NewIndex(mesh *model.Mesh) *Index {
	x := &Index{
		base:          mesh,
		exports:       &exports{},
		auto:          newAutoAddresses(mesh.AutoAddresses),
		mesh:          mesh,
		discovery:     newDiscovery(mesh.RootNamespace),
		services:      map[model.Host][]*model.Service{},
		rules:         map[model.Host][]*model.DestinationRule{},
		backendTLS:    map[model.Host][]*model.BackendTLSPolicy{},
		routes:        map[model.Host][]*model.VirtualService{},
		bound:         bound{},
		delegate:      map[model.Key]*model.VirtualService{},
		sidecars:      map[string]map[model.Key]*model.Sidecar{},
		policies:      map[policyKey][]model.Selecting{},
		keySets:       map[string]*model.KeySet{},
		secrets:       map[model.Key]*model.Secret{},
		endpoints:     newEndpointIndex(),
		labels:        labelUse{},
		proxies:       proxyUse{metadata: labelUse{}},
		localityUsage: localityUsage{namespaces: map[string]model.Distribution{}},

		credentials: map[string]int{}, pulls: map[string]int{},
	}
	x.exports.discovery = x.discovery
	x.endpoints.accepts = x.accepts
	return x
}

// apply takes one change into the index and adds the facts it touches.
func (x *Index) apply(c store.Change, touched *touched) {
	switch c.Key.Kind {
	case model.KindService, model.KindServiceEntry:
		x.replaceServices(servicesOf(c.Old), servicesOf(c.New), touched)
	case model.KindVirtualService, model.KindHTTPRoute, model.KindGRPCRoute, model.KindTLSRoute, model.KindTCPRoute:
		x.replaceVirtualService(as[*model.VirtualService](c.Old), as[*model.VirtualService](c.New), touched)
	case model.KindDestinationRule:
		x.replaceRule(as[*model.DestinationRule](c.Old), as[*model.DestinationRule](c.New), touched)
	case model.KindBackendTLSPolicy:
		x.replaceBackendTLS(as[*model.BackendTLSPolicy](c.Old), as[*model.BackendTLSPolicy](c.New), touched)
	case model.KindSidecar:
		x.replaceSidecar(as[*model.Sidecar](c.Old), as[*model.Sidecar](c.New), touched)
	case model.KindEndpointSlice:
		x.endpoints.replaceSlice(as[*model.EndpointSlice](c.Old), as[*model.EndpointSlice](c.New), touched)
	case model.KindNamespace:
		x.replaceNamespace(as[*model.Namespace](c.Old), as[*model.Namespace](c.New), touched)
	case model.KindConfigMap:
		if !c.Key.IsMeshConfig() {
			x.replaceSecret(as[*model.Secret](c.Old), as[*model.Secret](c.New), touched)
			return
		}
		x.replaceMesh(as[*model.MeshConfig](c.New).Over(x.base), touched)
	case model.KindDrainNotice:
		x.endpoints.replaceDeparture(as[*model.DrainNotice](c.Old), as[*model.DrainNotice](c.New), touched)
	case model.KindNode:
		x.endpoints.replaceNode(as[*model.Node](c.Old), as[*model.Node](c.New), touched)
	case model.KindPod, model.KindWorkloadEntry:
		x.endpoints.replaceWorkload(as[*model.Workload](c.Old), as[*model.Workload](c.New), touched)
	case model.KindPeerAuthentication:
		x.replacePeerPolicy(c.Old, c.New, touched)
	case model.KindKeySet:
		x.replaceKeySet(as[*model.KeySet](c.Old), as[*model.KeySet](c.New), touched)
	case model.KindSecret:
		x.replaceSecret(as[*model.Secret](c.Old), as[*model.Secret](c.New), touched)
	case model.KindEnvoyFilter:
		x.replaceEnvoyFilter(as[*model.EnvoyFilter](c.Old), as[*model.EnvoyFilter](c.New), touched)
	case model.KindWasmPlugin:
		x.replaceWasmPlugin(as[*model.WasmPlugin](c.Old), as[*model.WasmPlugin](c.New), touched)
	case model.KindProxyConfig: // it counts when Pods get their sidecars
	default:
		x.replacePolicy(c.Old, c.New, touched)
	}
}

// replaceMesh has all scopes be derived anew.
func (x *Index) replaceMesh(now *model.Mesh, touched *touched) {
	old := x.mesh
	x.mesh, touched.mesh = now, true
	touched.labels = x.labels.countPriority(now.Locality, 1) || touched.labels
	touched.labels = x.labels.countPriority(old.Locality, -1) || touched.labels
	touched.labels = x.localityUsage.countMesh(now, 1) || touched.labels
	touched.labels = x.localityUsage.countMesh(old, -1) || touched.labels
}

// touched is what a batch has changed, in the index's words.
type touched struct {
	facts    factSet
	services []*model.Service        // old and new ones: scopes ask whether they see them
	routes   []*model.VirtualService // likewise
	bound    []*model.VirtualService // likewise, of gateways
	sidecars map[string]bool         // namespaces in which the selection of Sidecars may differ
	// members are the services whose identities may differ.
	members map[serviceKey]struct{}
	labels  bool // which labels matter may differ
	mesh    bool // the mesh's configuration differs
	// addresses at which other services than before have an endpoint, by namespace
	addresses map[name]bool
	pods      map[name]bool // that are in another locality than before
}

func newTouched() *touched {
	return &touched{
		facts: factSet{}, sidecars: map[string]bool{}, members: map[serviceKey]struct{}{},
		addresses: map[name]bool{}, pods: map[name]bool{},
	}
}

func (x *Index) replaceServices(old, now []*model.Service, touched *touched) {
	for _, s := range old {
		unlist(x.services, s.Hostname, s)
		x.endpoints.removeService(s, touched)
	}
	for _, s := range now {
		enlist(x.services, s.Hostname, s)
		x.endpoints.addService(s, touched)
	}
	for _, s := range now { // before the old ones, so that what both ask for does not count as news
		touched.labels = x.localityUsage.count(s.Distribution, 1) || touched.labels
	}
	for _, s := range old {
		touched.labels = x.localityUsage.count(s.Distribution, -1) || touched.labels
	}
	for _, s := range slices.Concat(old, now) {
		touched.facts.add(serviceFact(s.Hostname))
		touched.services = append(touched.services, s)
	}
}

func (x *Index) replaceVirtualService(old, now *model.VirtualService, touched *touched) {
	x.bound.replace(old, now, touched)
	if old != nil {
		x.eachRouteHost(old, func(h model.Host) { unlist(x.routes, h, old) }, touched)
		delete(x.delegate, old.Key)
	}
	if now != nil {
		x.eachRouteHost(now, func(h model.Host) { enlist(x.routes, h, now) }, touched)
		if len(now.Hosts) == 0 {
			x.delegate[now.Key] = now
		}
		touched.labels = x.labels.count(now, 1) || touched.labels
	}
	// The new one has been counted first, so that what both ask for does not count as news.
	if old != nil {
		touched.labels = x.labels.count(old, -1) || touched.labels
	}
}

func (x *Index) eachRouteHost(v *model.VirtualService, f func(model.Host), touched *touched) {
	touched.facts.add(delegateFact(v.Key))
	if !v.InMesh() {
		return
	}
	touched.routes = append(touched.routes, v)
	for _, h := range v.Hosts {
		f(h)
		touched.facts.add(virtualServiceFact(h))
	}
}

func (x *Index) replaceRule(old, now *model.DestinationRule, touched *touched) {
	if old != nil {
		unlist(x.rules, old.Host, old)
		touched.facts.add(destinationRuleFact(old.Host))
	}
	if now != nil {
		enlist(x.rules, now.Host, now)
		touched.facts.add(destinationRuleFact(now.Host))
		touched.labels = x.labels.countRule(now, 1) || touched.labels
		touched.labels = x.localityUsage.countRule(now, 1) || touched.labels
		touched.labels = x.countCredentials(now, 1) || touched.labels
	}
	if old != nil { // after the new one, as above
		touched.labels = x.labels.countRule(old, -1) || touched.labels
		touched.labels = x.localityUsage.countRule(old, -1) || touched.labels
		touched.labels = x.countCredentials(old, -1) || touched.labels
	}
}

// servicesOf lists the services that an object stands for.
func servicesOf(o model.Object) []*model.Service {
	switch o := o.(type) {
	case *model.Service:
		return []*model.Service{o}
	case *model.ServiceEntry:
		return o.Services()
	}
	return nil
}

// as is a type assertion under which nil stays nil.
func as[T any](o model.Object) T {
	t, _ := o.(T)
	return t
}

// enlist puts o where model.CompareAge has it in the list of a key. The list that there was is not changed: readers
// of an earlier revision may hold it.
func enlist[K comparable, T model.Object](m map[K][]T, k K, o T) {
	m[k] = append(slices.Clone(m[k]), o)
	slices.SortStableFunc(m[k], func(a, b T) int { return model.CompareAge(a, b) })
}

// unlist likewise takes away the object with o's key, and the list with the last one.
func unlist[K comparable, T model.Object](m map[K][]T, k K, o T) {
	m[k] = slices.DeleteFunc(slices.Clone(m[k]), func(e T) bool { return e.Metadata().Key == o.Metadata().Key })
	dropEmpty(m, k)
}

func dropEmpty[K comparable, V any](m map[K][]V, k K) {
	if len(m[k]) == 0 {
		delete(m, k)
	}
}
