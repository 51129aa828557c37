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
	compute   func() []*model.Endpoint
	endpoints []*model.Endpoint

	placing sync.Once
	places  []string // see reader.places
}

func (s *endpointSet) get() []*model.Endpoint {
	s.once.Do(func() { s.endpoints, s.compute = s.compute(), nil })
	return s.endpoints
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
