package derive

import (
	"cmp"

	"github.com/moonsail/moonsail/internal/model"
)

// endpointIndex knows which endpoints a service has, and which services a workload
// belongs to.
type endpointIndex struct {
	slices    map[name]map[model.Key]*model.EndpointSlice // by service
	workloads map[model.Key]*model.Workload
	entries   map[string]int                            // workloads that are no Pods, by namespace
	byPair    map[pairKey]map[model.Key]*model.Workload // workloads by each of their labels
	selecting map[pairKey]map[serviceKey]*model.Service // services by one label of their selector
	kube      map[name]*model.Service                   // Kubernetes services by name
	podSlices map[name]map[name]int                     // pod -> services whose slices name it
	nodes     nodeIndex
	sets      map[serviceKey]*endpointSet
	at        atAddress
	leaving   drainingWorkloads

	// accepts is what the sidecar of a workload accepts, by its namespace and labels. It adds the
	// policies that decide it.
	accepts    func(string, map[string]string, *model.OriginList) *model.PeerTLS
	speaking   int // workloads and inline endpoints that may speak mutual TLS
	identities map[serviceKey]*identities
}

// name is a namespaced name.
type name struct{ ns, name string }

// serviceKey tells the hosts of one ServiceEntry apart.
type serviceKey struct {
	key  model.Key
	host model.Host
}

// pairKey is a label of a namespace's workloads, as "key=value".
type pairKey struct{ ns, pair string }

func keyOf(s *model.Service) serviceKey { return serviceKey{s.Key, s.Hostname} }
func nameOf(o model.Object) name {
	m := o.Metadata()
	return name{m.Namespace, m.Name}
}

func newEndpointIndex() *endpointIndex {
	return &endpointIndex{
		slices:    map[name]map[model.Key]*model.EndpointSlice{},
		workloads: map[model.Key]*model.Workload{},
		entries:   map[string]int{},
		byPair:    map[pairKey]map[model.Key]*model.Workload{},
		selecting: map[pairKey]map[serviceKey]*model.Service{},
		kube:      map[name]*model.Service{},
		podSlices: map[name]map[name]int{},
		nodes:     newNodeIndex(),
		sets:      map[serviceKey]*endpointSet{},
		at:        newAtAddress(),
		leaving:   newDrainingWorkloads(),

		identities: map[serviceKey]*identities{},
	}
}

// touch forgets what was computed for a service.
func (x *endpointIndex) touch(s *model.Service, touched *touched) {
	touched.facts.add(endpointsFact(s.Hostname))
	x.indexAddresses(keyOf(s), s, touched)
	x.sets[keyOf(s)] = &endpointSet{
		service: s,
		compute: func(policies *model.OriginList) []*model.Endpoint { return x.compute(s, policies) },
		list:    func() *model.Origins { return x.members(s) },
	}
}

// set is never nil for a service that the index has.
func (x *endpointIndex) set(s *model.Service) *endpointSet { return x.sets[keyOf(s)] }

func (x *endpointIndex) addService(s *model.Service, touched *touched) {
	if s.IsKubernetes() {
		x.kube[nameOf(s)] = s
	}
	if pair, ok := selectorPair(s.Selector); ok {
		insert(x.selecting, pairKey{s.Namespace, pair}, keyOf(s), s)
		touched.facts.add(selectingFact(s.Namespace, pair))
	}
	x.leaving.listInline(s)
	x.countInline(s, 1)
	x.touch(s, touched)
	touched.members[keyOf(s)] = struct{}{}
}

func (x *endpointIndex) removeService(s *model.Service, touched *touched) {
	x.leaving.unlistInline(s)
	x.countInline(s, -1)
	if s.IsKubernetes() {
		delete(x.kube, nameOf(s))
	}
	if pair, ok := selectorPair(s.Selector); ok {
		take(x.selecting, pairKey{s.Namespace, pair}, keyOf(s))
		touched.facts.add(selectingFact(s.Namespace, pair))
	}
	x.indexAddresses(keyOf(s), nil, touched)
	delete(x.sets, keyOf(s))
	touched.members[keyOf(s)] = struct{}{}
	touched.facts.add(endpointsFact(s.Hostname))
}

func (x *endpointIndex) replaceSlice(old, now *model.EndpointSlice, touched *touched) {
	if old != nil {
		take(x.slices, name{old.Namespace, old.Service}, old.Key)
		x.countPods(old, -1)
		x.leaving.unlist(old.Key, addressesOfSlice(old))
		x.nodes.countSlice(old, -1)
		x.touchListed(old, samePods(old, now), touched)
	}
	if now != nil {
		insert(x.slices, name{now.Namespace, now.Service}, now.Key, now)
		x.countPods(now, 1)
		x.leaving.list(now.Key, addressesOfSlice(now), now)
		x.nodes.countSlice(now, 1)
		x.touchListed(now, samePods(old, now), touched)
	}
}

// touchListed touches the service of a slice.
func (x *endpointIndex) touchListed(slice *model.EndpointSlice, samePods bool, touched *touched) {
	s := x.kube[name{slice.Namespace, slice.Service}]
	if s == nil {
		return
	}
	x.touch(s, touched)
	if !samePods {
		touched.members[keyOf(s)] = struct{}{}
	}
}

func (x *endpointIndex) touchKube(n name, touched *touched) {
	if s := x.kube[n]; s != nil {
		x.touch(s, touched)
	}
}

func (x *endpointIndex) countPods(s *model.EndpointSlice, by int) {
	service := name{s.Namespace, s.Service}
	for i := range s.Members {
		pod := name{s.Namespace, s.Members[i].Pod}
		if pod.name == "" {
			continue
		}
		if x.podSlices[pod] == nil {
			x.podSlices[pod] = map[name]int{}
		}
		x.podSlices[pod][service] += by
		if x.podSlices[pod][service] == 0 {
			take(x.podSlices, pod, service)
		}
	}
}

func (x *endpointIndex) replaceWorkload(old, now *model.Workload, touched *touched) {
	x.moved(old, now, touched)
	x.touchServices(old, now, touched)
	if old != nil {
		delete(x.workloads, old.Key)
		x.countEntry(old, -1)
		x.countSpeaking(old.Labels, -1)
		x.leaving.unlist(old.Key, old.Addresses)
		take(x.nodes.workloads, old.Node, old.Key)
		for k, v := range old.Labels {
			take(x.byPair, pairKey{old.Namespace, k + "=" + v}, old.Key)
		}
	}
	if now != nil {
		x.workloads[now.Key] = now
		x.countEntry(now, 1)
		x.countSpeaking(now.Labels, 1)
		x.leaving.list(now.Key, now.Addresses, now)
		x.nodes.put(now)
		for k, v := range now.Labels {
			insert(x.byPair, pairKey{now.Namespace, k + "=" + v}, now.Key, now)
		}
	}
}

func (x *endpointIndex) countEntry(w *model.Workload, by int) {
	if w.Kind == model.KindPod {
		return
	}
	if x.entries[w.Namespace] += by; x.entries[w.Namespace] == 0 {
		delete(x.entries, w.Namespace)
	}
}

// touchServices touches the services that a workload belonged to, or does now: those whose endpoints
// may differ, and those whose workloads may be others.
func (x *endpointIndex) touchServices(old, now *model.Workload, touched *touched) {
	for _, w := range []*model.Workload{old, now} {
		if w == nil {
			continue
		}
		for _, s := range x.servicesWith(w) {
			if x.matters(s, old, now) {
				x.touch(s, touched)
			}
			if !sameMember(old, now) {
				touched.members[keyOf(s)] = struct{}{}
			}
		}
	}
}

// matters tells whether a service's endpoints can differ after a workload has. A Pod of a
// service that has slices is an endpoint by them: most of what happens in its life is none.
func (x *endpointIndex) matters(s *model.Service, old, now *model.Workload) bool {
	w := cmp.Or(now, old)
	if w.Kind != model.KindPod || !s.IsKubernetes() || len(x.slices[nameOf(s)]) == 0 {
		return true
	}
	if x.podSlices[nameOf(w)][nameOf(s)] == 0 {
		return false
	}
	return old == nil || now == nil || !sameButPorts(x.endpointOf(old), x.endpointOf(now))
}

func insert[K, J comparable, V any](m map[K]map[J]V, k K, j J, v V) {
	if m[k] == nil {
		m[k] = map[J]V{}
	}
	m[k][j] = v
}

func take[K, J comparable, V any](m map[K]map[J]V, k K, j J) {
	delete(m[k], j)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}
