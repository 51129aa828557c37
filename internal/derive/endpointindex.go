package derive

import (
	"cmp"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

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
	leaving   leaving

	// accepts tells what the sidecar of a workload accepts, by its namespace and labels.
	accepts    func(string, map[string]string) *model.PeerTLS
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

// endpointSet is a service's endpoints, computed when somebody asks. Its identity tells
// that nothing has changed.
type endpointSet struct {
	service   *model.Service
	once      sync.Once
	compute   func() []*model.Endpoint
	endpoints []*model.Endpoint

	placing sync.Once
	places  []string // see reader.places
}

func (s *endpointSet) get() []*model.Endpoint {
	s.once.Do(func() { s.endpoints, s.compute = s.compute(), nil })
	return s.endpoints
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
		leaving:   newLeaving(),

		identities: map[serviceKey]*identities{},
	}
}

// touch forgets what was computed for a service.
func (x *endpointIndex) touch(s *model.Service, touched *touched) {
	touched.facts.add(endpointsFact(s.Hostname))
	x.indexAddresses(keyOf(s), s, touched)
	touched.endpoints[keyOf(s)] = struct{}{}
	x.sets[keyOf(s)] = &endpointSet{service: s, compute: func() []*model.Endpoint { return x.compute(s) }}
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
	touched.endpoints[keyOf(s)] = struct{}{}
	touched.facts.add(endpointsFact(s.Hostname))
}

func (x *endpointIndex) replaceSlice(old, now *model.EndpointSlice, touched *touched) {
	if old != nil {
		take(x.slices, name{old.Namespace, old.Service}, old.Key)
		x.countPods(old, -1)
		x.leaving.unlist(old.Key, addressesOfSlice(old))
		x.nodes.countSlice(old, -1)
		x.touchKube(name{old.Namespace, old.Service}, touched)
	}
	if now != nil {
		insert(x.slices, name{now.Namespace, now.Service}, now.Key, now)
		x.countPods(now, 1)
		x.leaving.list(now.Key, addressesOfSlice(now), now)
		x.nodes.countSlice(now, 1)
		x.touchKube(name{now.Namespace, now.Service}, touched)
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

// touchServices touches the services that a workload belonged to, or does now. Where its
// endpoints are the same, only who their workloads are is looked at again.
func (x *endpointIndex) touchServices(old, now *model.Workload, touched *touched) {
	for _, w := range []*model.Workload{old, now} {
		if w == nil {
			continue
		}
		for _, s := range x.servicesWith(w) {
			if x.matters(s, old, now) {
				x.touch(s, touched)
			} else if !sameMember(old, now) {
				touched.endpoints[keyOf(s)] = struct{}{}
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

// sameButPorts compares what endpointOf makes.
func sameButPorts(a, b model.Endpoint) bool {
	labels := maps.Equal(a.Labels, b.Labels)
	a.Labels, b.Labels, a.Ports, b.Ports = nil, nil, nil, nil
	return labels && reflect.DeepEqual(a, b)
}

// touchWorkload touches the services that w belongs to.
func (x *endpointIndex) touchWorkload(w *model.Workload, touched *touched) {
	for _, s := range x.servicesWith(w) {
		x.touch(s, touched)
	}
}

// servicesWith are those that w belongs to, in no order.
func (x *endpointIndex) servicesWith(w *model.Workload) []*model.Service {
	out := x.selectors(w.Namespace, w.Labels)
	if w.Kind == model.KindPod {
		for n := range x.podSlices[nameOf(w)] {
			if s := x.kube[n]; s != nil {
				out = append(out, s)
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

// selected are the workloads of ns that a selector selects, in no order.
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

// selectorPair is the pair under which a selector is indexed: that of its smallest key.
func selectorPair(selector map[string]string) (string, bool) {
	if len(selector) == 0 {
		return "", false
	}
	k := slices.Min(slices.Collect(maps.Keys(selector)))
	return k + "=" + selector[k], true
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

// compute lists a service's endpoints with what their sidecars accept: those of its own in their order, others
// sorted by address.
func (x *endpointIndex) compute(s *model.Service) []*model.Endpoint {
	if s.Inline != nil {
		return pointersTo(x.encryptAll(x.leaving.inlineHealths(s.Inline)))
	}
	out := x.list(s)
	for i := range out {
		x.encrypt(&out[i])
	}
	return byAddress(out)
}

// pointersTo spares copies: an endpoint is large.
func pointersTo(list []model.Endpoint) []*model.Endpoint {
	out := make([]*model.Endpoint, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// list makes the endpoints of a service that names none itself.
func (x *endpointIndex) list(s *model.Service) []model.Endpoint {
	var out []model.Endpoint
	switch {
	case s.IsKubernetes():
		parts := x.slices[name{s.Namespace, s.Name}]
		if len(parts) > 0 {
			out = x.fromSlices(s, parts)
		}
		out = append(out, x.fromWorkloads(s, len(parts) == 0)...)
	default:
		out = x.fromWorkloads(s, true)
	}
	return out
}

// byAddress sorts endpoints; those of one address stay in their order.
func byAddress(list []model.Endpoint) []*model.Endpoint {
	places := make([]int, len(list))
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Or(strings.Compare(list[a].Address, list[b].Address), a-b) })
	out := make([]*model.Endpoint, len(list))
	for i, p := range places {
		out[i] = &list[p]
	}
	return out
}

// fromWorkloads makes endpoints of the workloads that s selects: WorkloadEntries, and
// Pods where nobody makes EndpointSlices of them.
func (x *endpointIndex) fromWorkloads(s *model.Service, pods bool) []model.Endpoint {
	if !pods && x.entries[s.Namespace] == 0 {
		return nil
	}
	var list []*model.Workload
	for w := range x.selected(s.Namespace, s.Selector) {
		if w.Address() != "" && (pods || w.Kind != model.KindPod) {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b *model.Workload) int { return a.Key.Compare(b.Key) })
	var out []model.Endpoint
	for _, w := range list {
		health, ok := workloadHealth(w, s.PublishNotReady)
		if !ok {
			continue
		}
		pod := ""
		if w.Kind == model.KindPod {
			pod = w.Name
		}
		e := x.endpointOf(w)
		e.Address, e.Weight, e.Ports = w.Address(), w.Weight, portsOf(s, w)
		e.Health = x.leaving.health(health, e.Address, w.Namespace, pod)
		out = append(out, e)
	}
	return out
}

// workloadHealth tells whether a workload is an endpoint, and in which state. A
// WorkloadEntry is one for as long as it is there.
func workloadHealth(w *model.Workload, publishNotReady bool) (model.Health, bool) {
	switch {
	case w.Kind != model.KindPod || publishNotReady:
		return model.Healthy, true
	case w.Terminating && w.Ready:
		return model.Draining, true
	case !w.Ready:
		return model.Unhealthy, false
	}
	return model.Healthy, true
}

// portsOf resolves a service's ports on one workload, by service port name. What a
// WorkloadEntry says of a service's port goes before the service's target port, as do the
// named ports of a Pod for a ServiceEntry.
func portsOf(s *model.Service, w *model.Workload) map[string]uint32 {
	out := make(map[string]uint32, len(s.Ports))
	for _, p := range s.Ports {
		n, ok := w.NamedPorts[p.Name]
		byName := p.TargetName == "" && (w.Kind == model.KindWorkloadEntry || !s.IsKubernetes())
		if !ok || !byName {
			n, ok = targetPort(p, w.NamedPorts)
		}
		if ok {
			out[p.Name] = n
		}
	}
	return out
}

// targetPort is the port that a workload listens on for a service port. A WorkloadEntry's
// ports map names service ports; a Pod's named ports are container ports.
func targetPort(p model.ServicePort, named map[string]uint32) (uint32, bool) {
	if p.TargetName != "" {
		n, ok := named[p.TargetName]
		return n, ok
	}
	if n, ok := named[p.Name]; ok && p.TargetPort == 0 {
		return n, true
	}
	if p.TargetPort != 0 {
		return p.TargetPort, true
	}
	return p.Number, true
}

// endpointOf takes over what a workload says of itself, and its node of where it is.
func (x *endpointIndex) endpointOf(w *model.Workload) model.Endpoint {
	return model.Endpoint{
		Labels: w.Labels, Locality: x.where(w), Node: w.Node, Network: w.Network,
		Workload: cmp.Or(w.Owner, w.Name), Namespace: w.Namespace, ServiceAccount: w.ServiceAccount,
	}
}
