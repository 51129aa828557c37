package index

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/model"
)

// EndpointSet is a service's endpoints, computed on the first question. As long as its pointer is the same, nothing has
// changed.
type EndpointSet struct {
	service   *model.Service
	once      sync.Once
	compute   func(*model.OriginList) []*model.Endpoint
	endpoints []*model.Endpoint
	policies  model.OriginList // that decide what the sidecars accept

	ownHosts sync.Once
	ownHost  bool // see HasOwnHost

	placing sync.Once
	places  []string // see Reader.Places

	listing sync.Once
	list    func() *model.Origins
	listed  *model.Origins // see Members

	listPort func(*model.ServicePort) *model.Origins // of a merged service
}

// Get lists the endpoints.
func (s *EndpointSet) Get() []*model.Endpoint {
	s.once.Do(func() { s.endpoints, s.compute = s.compute(&s.policies), nil })
	return s.endpoints
}

// HasOwnHost reports whether some endpoint is on the host of the proxy that calls it.
func (s *EndpointSet) HasOwnHost() bool {
	s.ownHosts.Do(func() {
		s.ownHost = slices.ContainsFunc(s.Get(), func(e *model.Endpoint) bool { return model.IsOwnHost(e.Address) })
	})
	return s.ownHost
}

// Members are the service, its slices and its WorkloadEntries.
func (s *EndpointSet) Members() *model.Origins {
	s.listing.Do(func() { s.listed, s.list = s.list(), nil })
	return s.listed
}

// Origins are what the endpoints for a port are made from; nil: those of all ports.
func (s *EndpointSet) Origins(port *model.ServicePort) *model.Origins {
	s.Get()
	members := s.Members()
	if port != nil && s.service.Parts != nil {
		members = s.listPort(port)
	}
	return members.Union(s.policies.Since(0))
}

func (x *endpointIndex) members(s *model.Service) *model.Origins {
	var out model.OriginList
	for _, p := range s.Parts {
		out.AddAll(x.members(p))
	}
	if s.Parts != nil {
		return out.Since(0)
	}
	out.Add(s.Key)
	if s.IsKubernetes() {
		for k := range x.slices[nameOf(s)] {
			out.Add(k)
		}
	}
	if x.entries[s.Namespace] > 0 {
		for w := range x.selected(s.Namespace, s.Selector) {
			if w.IsOrigin() && !(s.IsResolved() && model.IsSocket(w.Address())) {
				out.Add(w.Key)
			}
		}
	}
	return out.Since(0)
}

// compute lists a service's endpoints with what their sidecars accept. Inline endpoints stay in their order, others are
// sorted by address. It adds the policies that decide what the sidecars accept.
func (x *endpointIndex) compute(s *model.Service, policies *model.OriginList) []*model.Endpoint {
	if s.Parts != nil {
		return x.mergedEndpoints(s, policies)
	}
	if s.Inline != nil {
		return pointersTo(x.encryptAll(x.draining.inlineHealths(s), policies))
	}
	out := x.list(s)
	for i := range out {
		x.encrypt(&out[i], policies)
	}
	return byAddress(out)
}

// pointersTo avoids copies: an endpoint is large.
func pointersTo(list []model.Endpoint) []*model.Endpoint {
	out := make([]*model.Endpoint, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// list makes the endpoints of a service without inline endpoints.
func (x *endpointIndex) list(s *model.Service) []model.Endpoint {
	var out []model.Endpoint
	switch {
	case s.IsKubernetes():
		parts := x.slices[name{s.Namespace, s.Name}]
		if len(parts) > 0 {
			out = x.fromSlices(s, parts, x.firstFamily(s, parts))
		}
		out = append(out, x.fromWorkloads(s, len(parts) == 0)...)
	default:
		out = x.fromWorkloads(s, true)
	}
	return out
}

// inBothFamilies lists a service's endpoints with the addresses of both families; false: its slices have one family, so that
// these are its endpoints.
func (x *endpointIndex) inBothFamilies(s *model.Service) ([]*model.Endpoint, bool) {
	if s.Parts == nil {
		parts := x.slices[nameOf(s)]
		if !s.IsKubernetes() || x.firstFamily(s, parts) == nil {
			return nil, false
		}
		return byAddress(append(x.fromSlices(s, parts, nil), x.fromWorkloads(s, false)...)), true
	}
	var out []*model.Endpoint
	both := false
	for _, p := range s.Parts {
		list, has := x.inBothFamilies(p)
		if !has {
			list = x.compute(p, &model.OriginList{})
		}
		out, both = append(out, list...), both || has
	}
	return out, both
}

// byAddress sorts endpoints. Endpoints with one address keep their order.
func byAddress(list []model.Endpoint) []*model.Endpoint {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(strings.Compare(list[a].Address, list[b].Address), a-b) })
	out := make([]*model.Endpoint, len(list))
	for i, at := range order {
		out[i] = &list[at]
	}
	return out
}
