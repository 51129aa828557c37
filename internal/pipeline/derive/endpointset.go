package derive

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/model"
)

// endpointSet is a service's endpoints, computed when somebody asks. Its identity tells
// that nothing has changed.
type endpointSet struct {
	service   *model.Service
	once      sync.Once
	compute   func(*model.OriginList) []*model.Endpoint
	endpoints []*model.Endpoint
	policies  model.OriginList // that decide what the sidecars accept

	placing sync.Once
	places  []string // see reader.places

	listing sync.Once
	list    func() *model.Origins
	listed  *model.Origins // see members
}

func (s *endpointSet) get() []*model.Endpoint {
	s.once.Do(func() { s.endpoints, s.compute = s.compute(&s.policies), nil })
	return s.endpoints
}

// members are the service and the objects that list what belongs to it.
func (s *endpointSet) members() *model.Origins {
	s.listing.Do(func() { s.listed, s.list = s.list(), nil })
	return s.listed
}

// origins are what the endpoints are made from.
func (s *endpointSet) origins() *model.Origins {
	s.get()
	return s.members().Union(s.policies.Since(0))
}

// members lists a service, its slices and its WorkloadEntries.
func (x *endpointIndex) members(s *model.Service) *model.Origins {
	var out model.OriginList
	out.Add(s.Key)
	if s.IsKubernetes() {
		for k := range x.slices[nameOf(s)] {
			out.Add(k)
		}
	}
	if x.entries[s.Namespace] > 0 {
		for w := range x.selected(s.Namespace, s.Selector) {
			if w.IsOrigin() {
				out.Add(w.Key)
			}
		}
	}
	return out.Since(0)
}

// compute lists a service's endpoints with what their sidecars accept: those of its own in their order, others
// sorted by address. It adds the policies that decide what they accept.
func (x *endpointIndex) compute(s *model.Service, policies *model.OriginList) []*model.Endpoint {
	if s.Inline != nil {
		return pointersTo(x.encryptAll(x.leaving.inlineHealths(s.Inline), policies))
	}
	out := x.list(s)
	for i := range out {
		x.encrypt(&out[i], policies)
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
