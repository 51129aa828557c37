package index

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// endpointIndex finds the endpoints of a service, and the services that a workload belongs to.
type endpointIndex struct {
	slices    map[name]map[model.Key]*model.EndpointSlice // by service
	workloads map[model.Key]*model.Workload
	entries   entryCounts
	byPair    map[pairKey]map[model.Key]*model.Workload // workloads by each of their labels
	selecting map[pairKey]map[serviceKey]*model.Service // services by one label of their selector
	kube      map[name]*model.Service                   // Kubernetes services by name
	podSlices podServices
	unnamed   addressServices
	nodes     nodeIndex
	sets      map[serviceKey]*EndpointSet
	merged    map[hostIn][]*model.Service // of hosts that several services of a namespace have
	at        addressIndex
	draining  drainIndex
	topology  labelUse // labels of topology that objects ask clients for

	// accepts is what the sidecar of a workload accepts, by its namespace and labels. It adds the policies that decide it.
	accepts    func(string, map[string]string, *model.OriginList) *model.PeerTLS
	identities map[serviceKey]*Identities
}

// name is a namespaced name.
type name struct{ ns, name string }

// serviceKey is the key of an object and one of its hosts: a ServiceEntry has several.
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
		entries:   entryCounts{},
		byPair:    map[pairKey]map[model.Key]*model.Workload{},
		selecting: map[pairKey]map[serviceKey]*model.Service{},
		kube:      map[name]*model.Service{},
		podSlices: podServices{},
		unnamed:   addressServices{},
		nodes:     newNodeIndex(),
		sets:      map[serviceKey]*EndpointSet{},
		merged:    map[hostIn][]*model.Service{},
		at:        newAddressIndex(),
		draining:  newDrainIndex(),
		topology:  labelUse{},

		identities: map[serviceKey]*Identities{},
	}
}

// touch forgets what was computed for a service.
func (x *endpointIndex) touch(s *model.Service, touched *Touched) {
	touched.Facts.add(endpointsFact(s.Hostname))
	x.indexAddresses(keyOf(s), s, touched)
	x.renew(s)
	for _, m := range x.merged[hostOf(s)] {
		x.renew(m)
	}
}

// renew makes a new set. That of a merged service takes the place of its first part's.
func (x *endpointIndex) renew(s *model.Service) {
	x.sets[keyOf(s)] = &EndpointSet{
		service: s,
		compute: func(policies *model.OriginList) []*model.Endpoint { return x.compute(s, policies) },
		list:    func() *model.Origins { return x.members(s) },

		listPort: func(p *model.ServicePort) *model.Origins { return x.membersWith(s, p) },
	}
}

// touchMembers makes the identities of a service's workloads be computed again.
func (x *endpointIndex) touchMembers(s *model.Service, touched *Touched) {
	touched.members[keyOf(s)] = struct{}{}
	for _, m := range x.merged[hostOf(s)] {
		touched.members[keyOf(m)] = struct{}{}
	}
}

func (x *endpointIndex) addService(s *model.Service, touched *Touched) {
	if s.IsKubernetes() {
		x.kube[nameOf(s)] = s
	}
	if pair, ok := selectorPair(s.Selector); ok {
		insert(x.selecting, pairKey{s.Namespace, pair}, keyOf(s), s)
		touched.Facts.add(selectingFact(s.Namespace, pair))
	}
	x.draining.listInline(s)
	x.touch(s, touched)
	x.touchMembers(s, touched)
}

func (x *endpointIndex) removeService(s *model.Service, touched *Touched) {
	x.draining.unlistInline(s)
	if s.IsKubernetes() {
		delete(x.kube, nameOf(s))
	}
	if pair, ok := selectorPair(s.Selector); ok {
		take(x.selecting, pairKey{s.Namespace, pair}, keyOf(s))
		touched.Facts.add(selectingFact(s.Namespace, pair))
	}
	x.indexAddresses(keyOf(s), nil, touched)
	delete(x.sets, keyOf(s))
	x.touchMembers(s, touched)
	touched.Facts.add(endpointsFact(s.Hostname))
}

func (x *endpointIndex) replaceSlice(old, now *model.EndpointSlice, touched *Touched) {
	if old != nil {
		take(x.slices, name{old.Namespace, old.Service}, old.Key)
		x.podSlices.add(old, -1)
		x.unnamed.add(old, -1)
		x.draining.unlist(old.Key, addressesOfSlice(old))
		x.nodes.countSlice(old, -1)
		x.touchListed(old, samePods(old, now), touched)
	}
	if now != nil {
		insert(x.slices, name{now.Namespace, now.Service}, now.Key, now)
		x.podSlices.add(now, 1)
		x.unnamed.add(now, 1)
		x.draining.list(now.Key, addressesOfSlice(now), now)
		x.nodes.countSlice(now, 1)
		x.touchListed(now, samePods(old, now), touched)
	}
}

// touchListed touches the service of a slice.
func (x *endpointIndex) touchListed(slice *model.EndpointSlice, samePods bool, touched *Touched) {
	s := x.kube[name{slice.Namespace, slice.Service}]
	if s == nil {
		return
	}
	x.touch(s, touched)
	if !samePods {
		x.touchMembers(s, touched)
	}
}

// podServices counts, by Pod, how often the slices of a service name it.
type podServices map[name]map[name]int

func (c podServices) add(s *model.EndpointSlice, by int) {
	service := name{s.Namespace, s.Service}
	for i := range s.Members {
		if pod := (name{s.Namespace, s.Members[i].Pod}); pod.name != "" {
			countService(c, pod, service, by)
		}
	}
}

// addressServices counts, by address, how often the slices of a service list it without a Pod.
type addressServices map[name]map[name]int

func (c addressServices) add(s *model.EndpointSlice, by int) {
	service := name{s.Namespace, s.Service}
	for i := range s.Members {
		if m := &s.Members[i]; m.Pod == "" && len(m.Addresses) > 0 {
			countService(c, name{s.Namespace, m.Addresses[0]}, service, by)
		}
	}
}

// list reports whether slices of a service list an address of a Pod, without its name.
func (c addressServices) list(service name, pod *model.Workload) bool {
	return pod != nil && pod.Kind == model.KindPod && slices.ContainsFunc(pod.Addresses, func(a string) bool {
		return c[name{pod.Namespace, a}][service] > 0
	})
}

// countService counts uses of a service by k, and drops counts of 0.
func countService[K comparable](m map[K]map[name]int, k K, service name, by int) {
	if m[k] == nil {
		m[k] = map[name]int{}
	}
	m[k][service] += by
	if m[k][service] == 0 {
		take(m, k, service)
	}
}

func (x *endpointIndex) replaceWorkload(old, now *model.Workload, touched *Touched) {
	x.moved(old, now, touched)
	if old != nil {
		delete(x.workloads, old.Key)
		x.entries.add(old, -1)
		x.draining.unlist(old.Key, old.Addresses)
		take(x.nodes.workloads, old.Node, old.Key)
		for k, v := range old.Labels {
			take(x.byPair, pairKey{old.Namespace, k + "=" + v}, old.Key)
		}
	}
	if now != nil {
		x.workloads[now.Key] = now
		x.entries.add(now, 1)
		x.draining.list(now.Key, now.Addresses, now)
		x.nodes.put(now)
		for k, v := range now.Labels {
			insert(x.byPair, pairKey{now.Namespace, k + "=" + v}, now.Key, now)
		}
	}
	x.touchEntry(old, now, touched)
	x.touchServices(old, now, touched)
}

// entryCounts are the numbers of WorkloadEntries by namespace.
type entryCounts map[string]int

func (c entryCounts) add(w *model.Workload, by int) {
	if w.Kind == model.KindPod {
		return
	}
	if c[w.Namespace] += by; c[w.Namespace] == 0 {
		delete(c, w.Namespace)
	}
}

// touchServices touches the services that a workload belonged to or belongs to now, if their endpoints or their identities
// may differ.
func (x *endpointIndex) touchServices(old, now *model.Workload, touched *Touched) {
	for _, w := range []*model.Workload{old, now} {
		if w == nil {
			continue
		}
		for _, s := range x.servicesWith(w) {
			if x.matters(s, old, now) {
				x.touch(s, touched)
			}
			if !sameMember(old, now) || !x.samePlace(old, now) || x.listsAnew(s, old, now) {
				x.touchMembers(s, touched)
			}
		}
	}
}

// matters reports whether a service's endpoints can differ after a change of a workload. A Pod of a service with slices is
// an endpoint through these. Most changes of such a Pod do not matter.
func (x *endpointIndex) matters(s *model.Service, old, now *model.Workload) bool {
	w := cmp.Or(now, old)
	if w.Kind != model.KindPod || !s.IsKubernetes() || len(x.slices[nameOf(s)]) == 0 {
		return true
	}
	if x.listsAnew(s, old, now) {
		return true
	}
	if x.podSlices[nameOf(w)][nameOf(s)] == 0 && !x.unnamed.list(nameOf(s), now) {
		return false
	}
	return old == nil || now == nil || !sameButPorts(x.endpointOf(old), x.endpointOf(now))
}

// listsAnew reports whether a service lists an address that finds other Pods after a change of one (see podAt).
func (x *endpointIndex) listsAnew(s *model.Service, old, now *model.Workload) bool {
	if !x.unnamed.list(nameOf(s), old) && !x.unnamed.list(nameOf(s), now) {
		return false
	}
	return old == nil || now == nil || old.OwnsAddress() != now.OwnsAddress() || !slices.Equal(old.Addresses, now.Addresses)
}

// servicesWith lists the services that w belongs to, in no order.
func (x *endpointIndex) servicesWith(w *model.Workload) []*model.Service {
	out := x.selectors(w.Namespace, w.Labels)
	if w.Kind == model.KindPod {
		for n := range x.podSlices[nameOf(w)] {
			if s := x.kube[n]; s != nil {
				out = append(out, s)
			}
		}
		for _, a := range w.Addresses {
			for n := range x.unnamed[name{w.Namespace, a}] {
				if s := x.kube[n]; s != nil {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// selectors lists the services of ns that select labels, in no order.
func (x *endpointIndex) selectors(ns string, labels map[string]string) []*model.Service {
	var out []*model.Service
	for k, v := range labels {
		for _, s := range x.selecting[pairKey{ns, k + "=" + v}] {
			if model.SelectorMatches(s.Selector, labels) {
				out = append(out, s)
			}
		}
	}
	return out
}

// selected yields the workloads of ns that a selector selects, in no order.
func (x *endpointIndex) selected(ns string, selector map[string]string) iter.Seq[*model.Workload] {
	return func(yield func(*model.Workload) bool) {
		pair, ok := selectorPair(selector)
		if !ok {
			return
		}
		for _, w := range x.byPair[pairKey{ns, pair}] {
			if (len(selector) == 1 || model.SelectorMatches(selector, w.Labels)) && !yield(w) {
				return
			}
		}
	}
}

// selectorPair is the label under which a selector is indexed: the one with the smallest key.
func selectorPair(selector map[string]string) (string, bool) {
	if len(selector) == 0 {
		return "", false
	}
	k := slices.Min(slices.Collect(maps.Keys(selector)))
	return k + "=" + selector[k], true
}
