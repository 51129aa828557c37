package index

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Index finds objects by what others call them. The deriving goroutine changes it between derivations. During derivations
// it is only read.
type Index struct {
	base *model.Mesh // that the control plane was started with
	mesh *model.Mesh // with the cluster's settings over it

	discovery *discovery
	exports   *exports
	auto      *autoAddresses
	services  map[model.Host][]*model.Service // by precedence, see enlist
	rules     map[model.Host][]*model.DestinationRule
	// backendTLS are policies by the hosts of their targets.
	backendTLS map[model.Host][]*model.BackendTLSPolicy // of Services
	entryTLS   map[model.Key][]*model.BackendTLSPolicy  // of ServiceEntries
	routes     map[model.Host][]*model.VirtualService   // of the gateway "mesh"
	// routesUnder are those with rules for connections, by each wildcard above their hosts.
	routesUnder map[model.Host][]*model.VirtualService
	bound       bound // virtual services of other gateways
	delegate    map[model.Key]*model.VirtualService
	sidecars    map[string]map[model.Key]*model.Sidecar // by namespace
	policies    map[policyKey][]model.Selecting
	keySets     map[string]*model.KeySet // by the source they are fetched from
	secrets     map[model.Key]*model.Secret
	disabling   int // policies that switch mutual TLS off somewhere
	// custom are AuthorizationPolicies of action AuthorizeCustom, by namespace.
	custom map[string]map[model.Key]*model.AuthorizationPolicy

	ingresses     ingresses
	entryRoutes   entryRoutes
	endpoints     *endpointIndex
	labels        labelUse
	naming        labelUse // of objects that change only inbound configuration, and name outbound clusters
	proxies       proxyUse
	localityUsage localityUsage
	deliveries    map[string]model.Delivery // of namespaces that have one
	automatic     automatic                 // delivery
	credentials   map[string]int            // destination rules and Sidecars that name credentials, by namespace
	pulls         map[string]int            // plugins that name credentials for registries, by namespace
	headless      map[portIn]int            // headless services by port
}

// New makes an empty index.
func New(mesh *model.Mesh) *Index {
	x := &Index{
		base:          mesh,
		exports:       &exports{},
		auto:          newAutoAddresses(mesh.AutoAddresses),
		mesh:          mesh,
		discovery:     newDiscovery(mesh.RootNamespace),
		services:      map[model.Host][]*model.Service{},
		rules:         map[model.Host][]*model.DestinationRule{},
		backendTLS:    map[model.Host][]*model.BackendTLSPolicy{},
		entryTLS:      map[model.Key][]*model.BackendTLSPolicy{},
		routes:        map[model.Host][]*model.VirtualService{},
		routesUnder:   map[model.Host][]*model.VirtualService{},
		bound:         bound{},
		delegate:      map[model.Key]*model.VirtualService{},
		sidecars:      map[string]map[model.Key]*model.Sidecar{},
		policies:      map[policyKey][]model.Selecting{},
		custom:        map[string]map[model.Key]*model.AuthorizationPolicy{},
		keySets:       map[string]*model.KeySet{},
		secrets:       map[model.Key]*model.Secret{},
		ingresses:     newIngresses(),
		entryRoutes:   newEntryRoutes(),
		endpoints:     newEndpointIndex(),
		labels:        labelUse{},
		naming:        labelUse{},
		proxies:       proxyUse{metadata: labelUse{}},
		deliveries:    map[string]model.Delivery{},
		automatic:     automatic{counts: map[seenBy]*serviceCount{}, groups: map[seenBy]int{}},
		localityUsage: localityUsage{namespaces: map[string]model.Distribution{}},

		credentials: map[string]int{}, pulls: map[string]int{}, headless: map[portIn]int{},
	}
	x.exports.discovery = x.discovery
	x.endpoints.accepts = x.accepts
	return x
}

// Touched is what a batch has changed.
type Touched struct {
	Facts    factSet
	Services []*model.Service        // old and new versions: groups check whether they see them
	Routes   []*model.VirtualService // old and new versions, of the mesh
	Bound    []*model.VirtualService // old and new versions, of gateways
	Sidecars map[string]bool         // namespaces in which the selection of Sidecars may differ
	Mesh     bool                    // the mesh's configuration differs

	// members are the services whose identities may differ.
	members map[serviceKey]struct{}
	// labels: which labels matter may differ.
	labels bool
	// addresses at which other services than before have an endpoint, by namespace
	addresses map[name]bool
	pods      map[name]bool // that are in another locality than before
	ports     map[name]bool // Pods with other named ports than before
}

func newTouched() *Touched {
	return &Touched{
		Facts: factSet{}, Sidecars: map[string]bool{}, members: map[serviceKey]struct{}{},
		addresses: map[name]bool{}, pods: map[name]bool{}, ports: map[name]bool{},
	}
}

// Apply takes a batch of changes into the index.
func (x *Index) Apply(changes []store.Change) *Touched {
	t := newTouched()
	changes, t.labels = x.auto.resolve(x.exports.resolve(x.discovery.filter(changes)))
	for _, c := range changes {
		x.apply(c, t)
	}
	if x.discovery.takeRelabelled() {
		t.Facts.add(namespacesFact())
	}
	x.endpoints.settle(t)
	t.labels = x.decideDeliveries() || t.labels // proxies belong to other groups
	return t
}

// apply takes one change into the index and adds the facts that it changes.
func (x *Index) apply(c store.Change, touched *Touched) {
	switch c.Key.Kind {
	case model.KindService, model.KindServiceEntry:
		x.replaceServices(servicesOf(c.Old), servicesOf(c.New), touched)
		if c.Key.Kind == model.KindServiceEntry {
			x.replaceEntry(c.Key, as[*model.ServiceEntry](c.New), touched)
		}
	case model.KindVirtualService:
		x.replaceVirtualService(as[*model.VirtualService](c.Old), as[*model.VirtualService](c.New), touched)
	case model.KindHTTPRoute, model.KindGRPCRoute, model.KindTLSRoute, model.KindTCPRoute:
		x.replaceRoute(c.Key, as[*model.VirtualService](c.Old), as[*model.VirtualService](c.New), touched)
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
	case model.KindIngress:
		x.replaceIngress(c.Key, as[*model.Ingress](c.New), touched)
	case model.KindIngressClass:
		x.replaceIngressClass(c.Key.Name, as[*model.IngressClass](c.New), touched)
	case model.KindDrainNotice:
		x.endpoints.replaceDrainNotice(as[*model.DrainNotice](c.Old), as[*model.DrainNotice](c.New), touched)
	case model.KindNode:
		x.endpoints.replaceNode(as[*model.Node](c.Old), as[*model.Node](c.New), touched)
	case model.KindPod, model.KindWorkloadEntry:
		x.endpoints.replaceWorkload(as[*model.Workload](c.Old), as[*model.Workload](c.New), touched)
	case model.KindPeerAuthentication:
		x.replacePeerPolicy(c.Old, c.New, touched)
	case model.KindAuthorizationPolicy:
		x.replaceCustom(as[*model.AuthorizationPolicy](c.Old), as[*model.AuthorizationPolicy](c.New), touched)
		x.replacePolicy(c.Old, c.New, touched)
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

// Rekey returns which proxies may belong to another group after a batch; nil: none.
func (x *Index) Rekey(t *Touched) func(*model.Proxy) bool {
	switch {
	case t.labels || t.Sidecars[x.mesh.RootNamespace]:
		return func(*model.Proxy) bool { return true }
	case x.localityUsage.localities+x.localityUsage.nodes+len(x.endpoints.topology) == 0 && len(t.Sidecars)+len(t.addresses)+len(t.ports) == 0:
		return nil // no object depends on where Pods are
	case len(t.Sidecars)+len(t.addresses)+len(t.pods)+len(t.ports) > 0:
		return func(p *model.Proxy) bool {
			pod := name{p.Namespace, p.Name}
			return t.Sidecars[p.Namespace] || t.addresses[addressOf(p)] || t.pods[pod] || t.ports[pod]
		}
	}
	return nil
}

// Mesh is the mesh's configuration in force.
func (x *Index) Mesh() *model.Mesh { return x.mesh }

// Sidecar finds a Sidecar; nil for the zero key and for one that is gone.
func (x *Index) Sidecar(k model.Key) *model.Sidecar { return x.sidecars[k.Namespace][k] }

// VisibleHosts calls f for each host with a service that clients see or with virtual services that count for them.
func (x *Index) VisibleHosts(c *Client, f func(model.Host)) {
	x.SeenServices(c, f)
	for h, list := range x.routes {
		if slices.ContainsFunc(list, c.ImportsRoutes) {
			f(h)
		}
	}
}

// SeenServices calls f for each host with a service that clients see.
func (x *Index) SeenServices(c *Client, f func(model.Host)) {
	for h, list := range x.services {
		if slices.ContainsFunc(list, c.Sees) {
			f(h)
		}
	}
}

// BoundTo lists the virtual services that are bound to a gateway, once for each of their hosts, in any order.
func (x *Index) BoundTo(gateway string) []*model.VirtualService {
	var out []*model.VirtualService
	for _, list := range x.bound[gateway] {
		out = append(out, list...)
	}
	return out
}

// Lacking lists the hosts of ServiceEntries for which no address is left. Callers must not change the list.
func (x *Index) Lacking() []Lack { return x.auto.lacking }

// Sizes returns how much the index holds, by table. Tables that are empty are left out.
func (x *Index) Sizes() map[string]int {
	e := x.endpoints
	out := map[string]int{
		"services": len(x.services), "rules": len(x.rules), "backendTLS": len(x.backendTLS), "entryTLS": len(x.entryTLS), "routes": len(x.routes), "routesUnder": len(x.routesUnder), "bound": len(x.bound),
		"delegate": len(x.delegate), "sidecars": len(x.sidecars), "labels": len(x.labels), "naming": len(x.naming), "policies": len(x.policies), "secrets": len(x.secrets),
		"entryRoutes.all": len(x.entryRoutes.all), "entryRoutes.served": len(x.entryRoutes.served), "entryRoutes.hosts": len(x.entryRoutes.hosts),
		"keySets": len(x.keySets), "credentials": len(x.credentials), "pulls": len(x.pulls), "headless": len(x.headless), "disabling": x.disabling, "custom": len(x.custom),
		"proxies.versions": x.proxies.versions, "proxies.metadata": len(x.proxies.metadata),
		"localityUsage.localities": x.localityUsage.localities, "localityUsage.nodes": x.localityUsage.nodes, "deliveries": len(x.deliveries), "automatic.counts": len(x.automatic.counts), "automatic.groups": len(x.automatic.groups),
		"localityUsage.namespaces": len(x.localityUsage.namespaces),
		"slices":                   len(e.slices), "workloads": len(e.workloads), "entries": len(e.entries), "byPair": len(e.byPair), "selecting": len(e.selecting), "kube": len(e.kube),
		"podSlices": len(e.podSlices), "unnamed": len(e.unnamed), "topology": len(e.topology), "sets": len(e.sets), "merged": len(e.merged), "identities": len(e.identities),
		"at.services": len(e.at.services), "at.indexed": len(e.at.indexed),
		"draining.notices": len(e.draining.notices), "draining.listed": len(e.draining.listed), "draining.inline": len(e.draining.inline),
	}
	for table, n := range out {
		if n == 0 {
			delete(out, table)
		}
	}
	return out
}

// as is a type assertion under which nil stays nil.
func as[T any](o model.Object) T {
	t, _ := o.(T)
	return t
}

// enlist adds o to the list of a key, in the order of model.CompareAge. It makes a new list: readers of an earlier
// revision may hold the old one.
func enlist[K comparable, T model.Object](m map[K][]T, k K, o T) {
	m[k] = append(slices.Clone(m[k]), o)
	slices.SortStableFunc(m[k], func(a, b T) int { return model.CompareAge(a, b) })
}

// unlist removes the object with o's key from a new list, and the list with the last one.
func unlist[K comparable, T model.Object](m map[K][]T, k K, o T) {
	m[k] = slices.DeleteFunc(slices.Clone(m[k]), func(e T) bool { return e.Metadata().Key == o.Metadata().Key })
	dropEmpty(m, k)
}

func dropEmpty[K comparable, V any](m map[K][]V, k K) {
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

// insert adds to a map of maps.
func insert[K, J comparable, V any](m map[K]map[J]V, k K, j J, v V) {
	if m[k] == nil {
		m[k] = map[J]V{}
	}
	m[k][j] = v
}

// take removes from a map of maps, and the inner map with its last entry.
func take[K, J comparable, V any](m map[K]map[J]V, k K, j J) {
	delete(m[k], j)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}
