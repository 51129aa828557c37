package derive

import (
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// fromSlices merges a service's slices. An address that two slices name counts once: the
// better state wins. So does a Pod with addresses of both families.
func (x *endpointIndex) fromSlices(s *model.Service, parts map[model.Key]*model.EndpointSlice) []model.Endpoint {
	size := membersOf(parts)
	at := make(map[string]int, size)
	counted := firstFamily(s, parts)
	out := make([]model.Endpoint, 0, size)
	for _, k := range sortedKeys(parts) {
		slice := parts[k]
		ports := slicePorts(slice)
		second := counted != nil && isIPv6(slice) != s.IPv6First
		for i := range slice.Members {
			if second && counted[slice.Members[i].Pod] {
				continue
			}
			e, ok := x.fromMember(s, slice, &slice.Members[i])
			if !ok {
				continue
			}
			e.Ports = ports
			j, seen := at[e.Address]
			switch {
			case !seen:
				at[e.Address] = len(out)
				out = append(out, e)
			case e.Health == model.Healthy && out[j].Health != model.Healthy:
				out[j].Health = model.Healthy
				fallthrough
			default:
				out[j].Ports = mergePorts(out[j].Ports, e.Ports)
			}
		}
	}
	return out
}

// firstFamily gives the Pods in slices of the service's first address family; nil where
// there are no slices of the other.
func firstFamily(s *model.Service, parts map[model.Key]*model.EndpointSlice) map[string]bool {
	var first []*model.EndpointSlice
	second := false
	for _, slice := range parts {
		switch {
		case len(slice.Members) == 0:
		case isIPv6(slice) == s.IPv6First:
			first = append(first, slice)
		default:
			second = true
		}
	}
	if !second || len(first) == 0 {
		return nil
	}
	pods := map[string]bool{}
	for _, slice := range first {
		for i := range slice.Members {
			if pod := slice.Members[i].Pod; pod != "" {
				pods[pod] = true
			}
		}
	}
	return pods
}

// isIPv6 tells the family of a slice, which all its addresses have.
func isIPv6(s *model.EndpointSlice) bool {
	return len(s.Members) > 0 && len(s.Members[0].Addresses) > 0 && strings.Contains(s.Members[0].Addresses[0], ":")
}

func sortedKeys(parts map[model.Key]*model.EndpointSlice) []model.Key {
	return slices.SortedFunc(maps.Keys(parts), model.Key.Compare)
}

func mergePorts(a, b map[string]uint32) map[string]uint32 {
	out := maps.Clone(b)
	maps.Copy(out, a)
	return out
}

// fromMember is an endpoint but for its ports.
func (x *endpointIndex) fromMember(s *model.Service, slice *model.EndpointSlice, m *model.SliceEndpoint) (model.Endpoint, bool) {
	health := model.Healthy
	switch {
	case len(m.Addresses) == 0:
		return model.Endpoint{}, false
	case s.PublishNotReady || m.Ready:
	case m.Terminating && m.Serving:
		health = model.Draining
	default:
		return model.Endpoint{}, false
	}
	e, known := x.behind(slice, m)
	if !known {
		return model.Endpoint{}, false
	}
	if e.Locality.Zone == "" {
		e.Locality.Zone = m.Zone
	}
	e.Address = m.Addresses[0]
	e.Health = x.leaving.health(health, e.Address, slice.Namespace, m.Pod)
	return e, true
}

// behind is what is known of who a member of a slice is; false where its Pod is not known yet, or gone.
// Callers would speak plaintext to such an endpoint, and take it for one of no subset.
func (x *endpointIndex) behind(slice *model.EndpointSlice, m *model.SliceEndpoint) (model.Endpoint, bool) {
	e := model.Endpoint{Namespace: slice.Namespace}
	if m.Pod == "" {
		e.Locality, e.Node = x.nodes.locality(m.Node), m.Node
		return e, true
	}
	if w := x.workloads[model.Key{Kind: model.KindPod, Namespace: slice.Namespace, Name: m.Pod}]; w != nil {
		return x.endpointOf(w), true
	}
	return e, !slice.PodsListed
}

// slicePorts are the ports of all endpoints of a slice, which share them: nobody changes them.
func slicePorts(slice *model.EndpointSlice) map[string]uint32 {
	out := make(map[string]uint32, len(slice.Ports))
	for _, p := range slice.Ports {
		out[p.Name] = p.Number
	}
	return out
}

func membersOf(parts map[model.Key]*model.EndpointSlice) int {
	n := 0
	for _, slice := range parts {
		n += len(slice.Members)
	}
	return n
}
