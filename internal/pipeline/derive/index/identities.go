package index

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// Identities are what callers of a service must know of its workloads for mutual TLS. All workloads count, ready or not:
// clusters change when a workload appears, which is before its endpoint does, and not when it becomes ready.
type Identities struct {
	Accounts []Account // of all workloads, as in Istio: callers may be told to use mutual TLS with any of them; sorted
	Some     bool      // a workload has a sidecar that speaks mutual TLS
	All      bool      // every workload has, on every port
	// Origins are the WorkloadEntries among them, and the policies that decide what they accept.
	Origins *model.Origins
}

// Account is a service account by namespace.
type Account struct{ Namespace, Name string }

func (a Account) compare(b Account) int {
	return model.Key{Namespace: a.Namespace, Name: a.Name}.Compare(model.Key{Namespace: b.Namespace, Name: b.Name})
}

func (i *Identities) equal(o *Identities) bool {
	return i.Some == o.Some && i.All == o.All && slices.Equal(i.Accounts, o.Accounts) && i.Origins.Equal(o.Origins)
}

// noIdentities is the result for a service without workloads.
var noIdentities = &Identities{}

// members collects the workloads of a service.
type members struct {
	accounts           map[Account]struct{}
	encrypted, partial int // with mutual TLS on every port, or on some
	plain              int
	last               Account // the account of the previous workload, which mostly is that of the next
	origins            model.OriginList
}

// add adds a workload with an account. tls is what its sidecar accepts; nil: it has no sidecar.
func (m *members) add(tls *model.PeerTLS, a Account) {
	switch {
	case tls == nil || !tls.Accepts():
		m.plain++
	case tls.AcceptsEverywhere():
		m.encrypted++
	default:
		m.partial++
	}
	if a.Name != "" && a != m.last {
		m.last = a
		m.accounts[a] = struct{}{}
	}
}

func (m *members) identities() *Identities {
	out := &Identities{Some: m.encrypted+m.partial > 0, All: m.encrypted > 0 && m.partial+m.plain == 0}
	if out.Some || len(m.accounts) > 0 {
		out.Origins = m.origins.Since(0)
	}
	if len(m.accounts) > 0 {
		out.Accounts = slices.SortedFunc(maps.Keys(m.accounts), Account.compare)
	}
	return out
}

// identify looks at all workloads of a service.
func (x *endpointIndex) identify(s *model.Service) *Identities {
	m := &members{accounts: map[Account]struct{}{}}
	for _, p := range s.Parts {
		x.addWorkloads(m, p)
	}
	if s.Parts == nil {
		x.addWorkloads(m, s)
	}
	return m.identities()
}

// addWorkloads adds the workloads of a service that is not merged.
func (x *endpointIndex) addWorkloads(m *members, s *model.Service) {
	for i := range s.Inline {
		e := s.Inline[i]
		x.encrypt(&e, &m.origins)
		m.add(e.TLS, Account{e.Namespace, e.ServiceAccount})
	}
	if s.Inline != nil {
		return
	}
	for w := range x.selected(s.Namespace, s.Selector) {
		x.addMember(m, w)
	}
	if s.IsKubernetes() {
		x.addSlices(m, s)
	}
}

func (x *endpointIndex) addMember(m *members, w *model.Workload) {
	if w.Ended() {
		return
	}
	var tls *model.PeerTLS
	if w.SpeaksMTLS() {
		tls = x.accepts(w.Namespace, x.labelsOfWorkload(w), &m.origins)
	}
	if w.IsOrigin() {
		m.origins.Add(w.Key)
	}
	m.add(tls, Account{w.Namespace, w.ServiceAccount})
}

// addSlices adds what the service's slices list beside selected workloads. Members without a Pod have no sidecar. A Pod
// that is named and has not arrived yet is not an endpoint.
func (x *endpointIndex) addSlices(m *members, s *model.Service) {
	for _, slice := range x.slices[name{s.Namespace, s.Name}] {
		for i := range slice.Members {
			w := x.podOfMember(slice, &slice.Members[i])
			switch {
			case w == nil && (slice.Members[i].Pod == "" || !slice.PodsListed):
				m.plain++
			case w != nil && (len(s.Selector) == 0 || !model.SelectorMatches(s.Selector, w.Labels)):
				m.origins.Add(slice.Key)
				x.addMember(m, w)
			}
		}
	}
}

// sameMember reports whether two versions of a workload count the same for its services' identities. Most changes of a Pod
// do not matter, and computing identities takes all Pods of a service.
func sameMember(old, now *model.Workload) bool {
	return old != nil && now != nil && old.ServiceAccount == now.ServiceAccount && old.Ended() == now.Ended() &&
		maps.Equal(old.Labels, now.Labels)
}

// samePods reports whether two versions of a slice list the same Pods, and so count the same for its service's identities.
// Most changes of a slice concern only the readiness of endpoints.
func samePods(old, now *model.EndpointSlice) bool {
	return old != nil && now != nil && old.Service == now.Service && old.PodsListed == now.PodsListed &&
		slices.EqualFunc(old.Members, now.Members, func(a, b model.SliceEndpoint) bool {
			return a.Pod == b.Pod && (a.Pod != "" || slices.Equal(a.Addresses, b.Addresses))
		})
}

// encrypt sets what an endpoint's sidecar accepts, and adds the policies that decide it.
func (x *endpointIndex) encrypt(e *model.Endpoint, policies *model.OriginList) {
	if e.Sidecar {
		e.TLS = x.accepts(e.Namespace, x.labelsOf(e), policies)
	}
}

// encryptAll sets what the sidecars of endpoints accept. It does not change the given list, which may be an object's.
func (x *endpointIndex) encryptAll(list []model.Endpoint, policies *model.OriginList) []model.Endpoint {
	if !slices.ContainsFunc(list, func(e model.Endpoint) bool { return e.Sidecar }) {
		return list
	}
	out := slices.Clone(list)
	for i := range out {
		x.encrypt(&out[i], policies)
	}
	return out
}

// settle computes, after a batch, the identities that may differ.
func (x *endpointIndex) settle(touched *Touched) {
	for k := range touched.members {
		now := noIdentities
		if s := x.sets[k]; s != nil {
			now = x.identify(s.service)
		}
		old, ok := x.identities[k]
		if !ok {
			old = noIdentities
		}
		if now.equal(noIdentities) {
			delete(x.identities, k)
		} else {
			x.identities[k] = now
		}
		if !now.equal(old) {
			touched.Facts.add(identitiesFact(k.host))
		}
	}
}
