package derive

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// locality is the policy's setting, where locality load balancing is on: by its own word, or
// for failover where outlier detection tells which endpoints fail. Where the policy has none the service's
// distribution counts, which needs no outlier detection: endpoints that are not there are no priority. Last
// comes the mesh's setting.
func (p *edsPlan) locality() (set model.LocalityLB, failover, on bool) {
	switch {
	case p.lb != nil && p.lb.Locality != nil:
		set = *p.lb.Locality
	case p.near != model.DistributionUnset:
		return model.LocalityLB{FailoverPriority: p.near.Labels()}, true, true
	case p.mesh != nil:
		set = *p.mesh
	}
	if set.Enabled != nil && !*set.Enabled {
		return set, false, false
	}
	failover = p.outlier && len(set.Distribute) == 0
	return set, failover, failover || len(set.Distribute) > 0
}

// distributes tells whether localities have shares of their own.
func (p *edsPlan) distributes() bool {
	set, _, on := p.locality()
	return on && len(set.Distribute) > 0
}

// priorities gives each endpoint its priority: 0 nearest to the client, without gaps.
func (s *proxyGroup) priorities(list []*model.Endpoint, p edsPlan) []uint32 {
	out := make([]uint32, len(list))
	set, failover, _ := p.locality()
	if !failover || s.Key.Locality == (model.Locality{}) && len(set.FailoverPriority) == 0 {
		return out
	}
	for i, e := range list {
		if len(set.FailoverPriority) > 0 {
			out[i] = s.labelDistance(set.FailoverPriority, e)
		} else {
			out[i] = s.distance(set.Failover, e.Locality)
		}
	}
	return dense(out)
}

// distance is 0 for the client's own subzone, then its zone, its region, the region that
// it fails over to, and the rest.
func (s *proxyGroup) distance(failover []model.LocalityFailover, l model.Locality) uint32 {
	me := s.Key.Locality
	switch {
	case l == me:
		return 0
	case l.Region == me.Region && l.Zone == me.Zone:
		return 1
	case l.Region == me.Region:
		return 2
	}
	for _, f := range failover {
		if f.From == me.Region && f.To == l.Region {
			return 3
		}
	}
	return 4
}

// labelDistance counts the labels from the first difference on.
func (s *proxyGroup) labelDistance(labels []string, e *model.Endpoint) uint32 {
	for i, l := range labels {
		key, want, fixed := strings.Cut(l, "=")
		if !fixed {
			want = s.clientLabel(key)
		}
		if endpointLabel(e, key) != want {
			return uint32(len(labels) - i)
		}
	}
	return 0
}

func (s *proxyGroup) clientLabel(key string) string {
	if v, ok := placeLabel(s.Key.Locality, s.Key.Node, key); ok {
		return v
	}
	return s.Labels[key]
}

func endpointLabel(e *model.Endpoint, key string) string {
	if v, ok := placeLabel(e.Locality, e.Node, key); ok {
		return v
	}
	return e.Labels[key]
}

// placeLabel is a label that tells where something is; false where it is another one.
func placeLabel(l model.Locality, node, key string) (string, bool) {
	switch key {
	case model.LabelRegion:
		return l.Region, true
	case model.LabelZone:
		return l.Zone, true
	case model.LabelSubzone:
		return l.Subzone, true
	case model.LabelNode:
		return node, true
	}
	return "", false
}

// dense renumbers priorities without gaps, as Envoy wants them.
func dense(p []uint32) []uint32 {
	used := slices.Compact(slices.Sorted(slices.Values(p)))
	for i := range p {
		p[i] = uint32(slices.Index(used, p[i]))
	}
	return p
}

// distribute gives localities the weights that the policy has for the client's.
// Localities without a weight get no traffic.
func (s *proxyGroup) distribute(list []ir.LocalityEndpoints, p edsPlan) []ir.LocalityEndpoints {
	set, _, on := p.locality()
	if !on {
		return list
	}
	for _, d := range set.Distribute {
		if !localityMatches(d.From, s.Key.Locality) {
			continue
		}
		return weigh(list, d.To)
	}
	return list
}

func weigh(list []ir.LocalityEndpoints, to map[string]uint32) []ir.LocalityEndpoints {
	patterns := make([]string, 0, len(to))
	for p := range to {
		patterns = append(patterns, p)
	}
	// Longer patterns are more specific.
	slices.SortFunc(patterns, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	share := map[string][]int{}
	for i := range list {
		for _, p := range patterns {
			if localityMatches(p, list[i].Locality) {
				share[p] = append(share[p], i)
				break
			}
		}
	}
	out := make([]ir.LocalityEndpoints, 0, len(list))
	for _, p := range patterns {
		for _, i := range share[p] {
			l := list[i]
			// Weights are in 1/len parts, so that localities of one pattern share it evenly.
			l.Weight = max(1, to[p]*100/uint32(len(share[p])))
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b ir.LocalityEndpoints) int {
		return strings.Compare(a.Locality.String(), b.Locality.String())
	})
	return out
}

// localityMatches reads patterns as "region/zone/*" and "*".
func localityMatches(pattern string, l model.Locality) bool {
	have := []string{l.Region, l.Zone, l.Subzone}
	for i, part := range strings.Split(pattern, "/") {
		if part == "*" {
			return true
		}
		if i >= len(have) || have[i] != part {
			return false
		}
	}
	return true
}
