package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// identities are what callers of a service have to know of its workloads to speak mutual
// TLS to them: those that are there, ready or not. So clusters change when a workload
// appears, before its endpoint does, and not when it gets ready.
type identities struct {
	accounts []account // of workloads with a sidecar; sorted
	some     bool      // a workload has a sidecar that speaks mutual TLS
	all      bool      // every workload has, on every port
	// origins are the WorkloadEntries among them, and the policies that decide what they accept.
	origins *model.Origins
}

// account is a service account by namespace.
type account struct{ namespace, name string }

func (a account) compare(b account) int {
	return model.Key{Namespace: a.namespace, Name: a.name}.Compare(model.Key{Namespace: b.namespace, Name: b.name})
}

func (i *identities) equal(o *identities) bool {
	return i.some == o.some && i.all == o.all && slices.Equal(i.accounts, o.accounts) && i.origins.Equal(o.origins)
}

// members collects the workloads of a service.
type members struct {
	accounts           map[account]struct{}
	encrypted, partial int // with mutual TLS on every port, or on some
	plain              int
	last               account // in accounts: that of the workload before, which mostly is that of the next
	origins            model.OriginList
}

// add adds a workload of an account, of which tls is what its sidecar accepts; nil: it has none.
func (m *members) add(tls *model.PeerTLS, a account) {
	switch {
	case tls == nil || !tls.Accepts():
		m.plain++
		return
	case tls.AcceptsEverywhere():
		m.encrypted++
	default:
		m.partial++
	}
	if a.name != "" && a != m.last {
		m.last = a
		m.accounts[a] = struct{}{}
	}
}

func (m *members) identities() *identities {
	out := &identities{some: m.encrypted+m.partial > 0, all: m.encrypted > 0 && m.partial+m.plain == 0}
	if out.some {
		out.origins = m.origins.Since(0)
	}
	if len(m.accounts) > 0 {
		out.accounts = slices.SortedFunc(maps.Keys(m.accounts), account.compare)
	}
	return out
}

// nobody is what a service without workloads that speak mutual TLS has.
var nobody = &identities{}

// identify looks at all workloads of a service.
func (x *endpointIndex) identify(s *model.Service) *identities {
	m := &members{accounts: map[account]struct{}{}}
	for i := range s.Inline {
		e := s.Inline[i]
		x.encrypt(&e, &m.origins)
		m.add(e.TLS, account{e.Namespace, e.ServiceAccount})
	}
	if s.Inline != nil {
		return m.identities()
	}
	for w := range x.selected(s.Namespace, s.Selector) {
		x.addMember(m, w)
	}
	if s.IsKubernetes() {
		x.addSlices(m, s)
	}
	return m.identities()
}

// addMember adds a workload.
func (x *endpointIndex) addMember(m *members, w *model.Workload) {
	if hasEnded(w) {
		return
	}
	var tls *model.PeerTLS
	if model.SpeaksMTLS(w.Labels) {
		tls = x.accepts(w.Namespace, w.Labels, &m.origins)
	}
	if w.IsOrigin() {
		m.origins.Add(w.Key)
	}
	m.add(tls, account{w.Namespace, w.ServiceAccount})
}

// addSlices adds what the service's slices list beside what it selects. Of who is no Pod
// nothing is known; a Pod that is not known is no endpoint.
func (x *endpointIndex) addSlices(m *members, s *model.Service) {
	for _, slice := range x.slices[name{s.Namespace, s.Name}] {
		for i := range slice.Members {
			pod := slice.Members[i].Pod
			w := x.workloads[model.Key{Kind: model.KindPod, Namespace: slice.Namespace, Name: pod}]
			switch {
			case w == nil && (pod == "" || !slice.PodsListed):
				m.plain++
			case w != nil && (len(s.Selector) == 0 || !model.SelectorMatches(s.Selector, w.Labels)):
				x.addMember(m, w)
			}
		}
	}
}

// hasEnded tells of which workloads callers need not know anything any more.
func hasEnded(w *model.Workload) bool { return w.Terminating && !w.Ready }

// sameMember tells whether a workload counts for its services' identities as it did: most of what
// happens in a Pod's life is nothing to them, and they are found from all Pods of a service.
func sameMember(old, now *model.Workload) bool {
	return old != nil && now != nil && old.ServiceAccount == now.ServiceAccount && hasEnded(old) == hasEnded(now) &&
		maps.Equal(old.Labels, now.Labels)
}

// encrypt fills in what an endpoint's sidecar accepts, and adds the policies that decide it.
func (x *endpointIndex) encrypt(e *model.Endpoint, policies *model.OriginList) {
	if model.SpeaksMTLS(e.Labels) {
		e.TLS = x.accepts(e.Namespace, e.Labels, policies)
	}
}

// encryptAll fills in what the sidecars of endpoints accept. The list given is not changed:
// it may be an object's.
func (x *endpointIndex) encryptAll(list []model.Endpoint, policies *model.OriginList) []model.Endpoint {
	if !slices.ContainsFunc(list, func(e model.Endpoint) bool { return model.SpeaksMTLS(e.Labels) }) {
		return list
	}
	out := slices.Clone(list)
	for i := range out {
		x.encrypt(&out[i], policies)
	}
	return out
}

// samePods tells whether two versions of a slice list the same Pods, and so count the same for its service's
// identities: most of what happens to endpoints is that they get ready, or cease to be.
func samePods(old, now *model.EndpointSlice) bool {
	return old != nil && now != nil && old.Service == now.Service && old.PodsListed == now.PodsListed &&
		slices.EqualFunc(old.Members, now.Members, func(a, b model.SliceEndpoint) bool { return a.Pod == b.Pod })
}

// settle finds out whose identities differ after a batch: of those services of which it may be so.
func (x *endpointIndex) settle(touched *touched) {
	for k := range touched.members {
		now := nobody
		if s := x.sets[k]; s != nil && x.speaking > 0 {
			now = x.identify(s.service)
		}
		old, ok := x.identities[k]
		if !ok {
			old = nobody
		}
		if now.equal(nobody) {
			delete(x.identities, k)
		} else {
			x.identities[k] = now
		}
		if !now.equal(old) {
			touched.facts.add(identitiesFact(k.host))
		}
	}
}

// countSpeaking counts those that may speak mutual TLS.
func (x *endpointIndex) countSpeaking(labels map[string]string, by int) {
	if model.SpeaksMTLS(labels) {
		x.speaking += by
	}
}

func (x *endpointIndex) countInline(s *model.Service, by int) {
	for i := range s.Inline {
		x.countSpeaking(s.Inline[i].Labels, by)
	}
}
