package endpoint

import (
	"math"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// locality is the setting of locality load balancing, and whether it is on: because it distributes, or for failover if
// outlier detection finds failing endpoints. If the policy has no setting, the service's distribution counts. It needs no
// outlier detection, because missing endpoints are enough to fail over. The mesh's setting comes last.
func (p *Plan) locality() (set model.LocalityLB, failover, on bool) {
	switch {
	case p.LoadBalancer != nil && p.LoadBalancer.Locality != nil:
		set = *p.LoadBalancer.Locality
	case p.Distribution != model.DistributionUnset:
		return model.LocalityLB{FailoverPriority: p.Distribution.Labels()}, true, true
	case p.Mesh != nil:
		set = *p.Mesh
	}
	if set.Enabled != nil && !*set.Enabled {
		return set, false, false
	}
	failover = p.Outlier && len(set.Distribute) == 0
	return set, failover, failover || len(set.Distribute) > 0
}

// Distributes reports whether localities have shares of their own.
func (p *Plan) Distributes() bool {
	set, _, on := p.locality()
	return on && len(set.Distribute) > 0
}

// priorities returns the priority of each endpoint: 0 is nearest to the client, and there are no gaps.
func priorities(c *index.Client, list []*model.Endpoint, p Plan) []uint32 {
	out := make([]uint32, len(list))
	set, failover, _ := p.locality()
	byLabels := len(set.FailoverPriority) > 0
	// With labels, localities count only if a failover between regions is set.
	byLocality := c.Key.Locality != (model.Locality{}) && (!byLabels || len(set.Failover) > 0)
	if !failover || !byLabels && !byLocality {
		return out
	}
	for i, e := range list {
		if byLabels {
			out[i] = labelDistance(c, set.FailoverPriority, e) * distances
		}
		if byLocality {
			out[i] += distance(c.Key.Locality, set.Failover, e.Locality)
		}
	}
	return dense(out)
}

// distances is the number of results of distance.
const distances = 5

// distance is 0 for the client's own subzone, then increases for its zone, its region, the region that it fails over to,
// and the rest.
func distance(me model.Locality, failover []model.LocalityFailover, l model.Locality) uint32 {
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
func labelDistance(c *index.Client, labels []string, e *model.Endpoint) uint32 {
	for i, l := range labels {
		key, want, fixed := strings.Cut(l, "=")
		if !fixed {
			want = clientLabel(c, key)
		}
		if endpointLabel(c, e, key) != want {
			return uint32(len(labels) - i)
		}
	}
	return 0
}

func clientLabel(c *index.Client, key string) string {
	if v, ok := topologyLabel(c.Key.Locality, c.Key.Node, key); ok {
		return v
	}
	return c.Labels[key]
}

func endpointLabel(c *index.Client, e *model.Endpoint, key string) string {
	if v, ok := topologyLabel(e.Locality, e.Node, key); ok {
		return v
	}
	if key == model.LabelCluster {
		return c.Labels[key] // a mesh has one cluster
	}
	v, _ := e.Label(key)
	return v
}

// topologyLabel is the value of a label about the locality or the node; false for other labels.
func topologyLabel(l model.Locality, node, key string) (string, bool) {
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

// dense renumbers priorities without gaps, which Envoy requires.
func dense(p []uint32) []uint32 {
	used := slices.Compact(slices.Sorted(slices.Values(p)))
	for i := range p {
		p[i] = uint32(slices.Index(used, p[i]))
	}
	return p
}

// distribute sets the weights of localities that the policy has for the client's locality. Localities without a weight get
// no traffic.
func distribute(client model.Locality, list []ir.LocalityEndpoints, p Plan) []ir.LocalityEndpoints {
	set, _, on := p.locality()
	if !on {
		return list
	}
	for _, d := range set.Distribute {
		if !localityMatches(d.From, client) {
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
		out = append(out, sharing(list, share[p], to[p])...)
	}
	slices.SortFunc(out, func(a, b ir.LocalityEndpoints) int {
		return strings.Compare(a.Locality.String(), b.Locality.String())
	})
	return out
}

// sharing divides the share of a pattern, in percent, among its localities in proportion to their own weights. Weights are
// hundredths of a percent, and at least 1.
func sharing(list []ir.LocalityEndpoints, indices []int, percent uint32) []ir.LocalityEndpoints {
	total := 0.0
	out := make([]ir.LocalityEndpoints, len(indices))
	for i, from := range indices {
		out[i] = list[from]
		total += ownWeight(out[i])
	}
	for i := range out {
		out[i].Weight = max(1, uint32(math.Round(float64(percent)*100*ownWeight(out[i])/total)))
	}
	return out
}

func ownWeight(l ir.LocalityEndpoints) float64 {
	sum := 0.0
	for i := range l.Endpoints {
		sum += float64(l.Endpoints[i].Weight)
	}
	return sum
}

// localityMatches reports whether a pattern such as "region/zone/*" or "*" matches a locality.
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
