package simulate

import (
	"fmt"
	"net"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// place computes the cluster's endpoints and their shares.
func (w *World) place(u *Upstream, c *clusterv3.Cluster, r *request) error {
	switch {
	case u.Discovery == "envoy.clusters.dynamic_forward_proxy":
		// The dynamic forward proxy resolves the authority.
		u.Endpoints = []Endpoint{{Address: r.headers[":authority"], Percent: 100}}
		return nil
	case c.GetClusterType() != nil && !strings.HasSuffix(u.Discovery, "_DNS"):
		return fmt.Errorf("cluster type %s is unknown to the simulator", u.Discovery)
	case c.GetType() == clusterv3.Cluster_ORIGINAL_DST:
		u.Endpoints = []Endpoint{{Address: originalDst(c, r), Percent: 100}}
		return nil
	case c.GetType() == clusterv3.Cluster_EDS:
		name := c.GetEdsClusterConfig().GetServiceName()
		if name == "" {
			name = c.GetName()
		}
		a := w.assignment(name)
		if a == nil {
			return fmt.Errorf("endpoints %q: missing, so the cluster would not finish warming", name)
		}
		u.Endpoints = balance(c, a)
		return nil
	}
	u.Endpoints = balance(c, c.GetLoadAssignment())
	return nil
}

// originalDst keeps the address and may change the port.
func originalDst(c *clusterv3.Cluster, r *request) string {
	o := c.GetOriginalDstLbConfig()
	if o.GetUseHttpHeader() {
		name := o.GetHttpHeaderName()
		if name == "" {
			name = "x-envoy-original-dst-host"
		}
		if v := r.headers[strings.ToLower(name)]; v != "" {
			return v
		}
	}
	if p := o.GetUpstreamPortOverride(); p != nil {
		return fmt.Sprintf("%s:%d", r.to.Addr(), p.GetValue())
	}
	return r.To
}

// host is an endpoint while shares are computed.
type host struct {
	Endpoint
	healthy  bool
	locality *endpointv3.LocalityLbEndpoints
	load     float64
}

// balance computes the share of each endpoint of the cluster's calls: priorities by health, then localities
// by weight if locality weights are on, then endpoints by weight.
func balance(c *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment) []Endpoint {
	levels := map[uint32][]*host{}
	var order []*host
	top := uint32(0)
	for _, l := range a.GetEndpoints() {
		top = max(top, l.GetPriority())
		for _, e := range l.GetLbEndpoints() {
			h := newHost(l, e)
			levels[l.GetPriority()] = append(levels[l.GetPriority()], h)
			order = append(order, h)
		}
	}
	loads, panicking := priorityLoads(c, a, levels, top)
	for p, hosts := range levels {
		spread(c, hosts, loads[p], panicking[p])
	}
	out := make([]Endpoint, len(order))
	for i, h := range order {
		h.Percent = round(h.load * 100)
		out[i] = h.Endpoint
	}
	return out
}

func newHost(l *endpointv3.LocalityLbEndpoints, e *endpointv3.LbEndpoint) *host {
	h := &host{locality: l}
	h.Address = addressOf(e.GetEndpoint().GetAddress())
	h.hostname = e.GetEndpoint().GetHostname()
	if h.hostname == "" && net.ParseIP(e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()) == nil {
		h.hostname = e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
	}
	h.socketMatch = e.GetMetadata().GetFilterMetadata()["envoy.transport_socket_match"]
	h.Weight = max(e.GetLoadBalancingWeight().GetValue(), 1)
	h.Priority, h.load = l.GetPriority(), 0
	loc := l.GetLocality()
	h.Locality = strings.Trim(loc.GetRegion()+"/"+loc.GetZone()+"/"+loc.GetSubZone(), "/")
	switch e.GetHealthStatus() {
	case corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY:
		h.healthy = true
	default:
		h.Health = strings.ToLower(e.GetHealthStatus().String())
	}
	if h.Weight == 1 {
		h.Weight = 0 // the text leaves it out; share counts it as 1
	}
	return h
}

func (h *host) share() float64 { return float64(max(h.Weight, 1)) }

func addressOf(a *corev3.Address) string {
	switch s := a.GetAddress().(type) {
	case *corev3.Address_SocketAddress:
		return net.JoinHostPort(s.SocketAddress.GetAddress(), fmt.Sprint(s.SocketAddress.GetPortValue()))
	case *corev3.Address_Pipe:
		return "unix://" + s.Pipe.GetPath()
	case *corev3.Address_EnvoyInternalAddress:
		return "internal://" + s.EnvoyInternalAddress.GetServerListenerName()
	}
	return ""
}

// priorityLoads follows Envoy's priority levels. A level takes its full load if its share of healthy hosts,
// times the overprovisioning factor, reaches 100 percent. The rest goes to the next levels. Below the panic
// threshold health is ignored.
func priorityLoads(c *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment, levels map[uint32][]*host, top uint32) (map[uint32]float64, map[uint32]bool) {
	factor := 1.4
	if f := a.GetPolicy().GetOverprovisioningFactor(); f != nil {
		factor = float64(f.GetValue()) / 100
	}
	able, healthy, total := map[uint32]float64{}, map[uint32]float64{}, 0.0
	for p, hosts := range levels {
		good := 0.0
		for _, h := range hosts {
			if h.healthy {
				good++
			}
		}
		healthy[p] = good / float64(len(hosts))
		able[p] = min(1, healthy[p]*factor)
		total += able[p]
	}
	return cascade(able, top, total), panics(c, healthy, total)
}

func cascade(able map[uint32]float64, top uint32, total float64) map[uint32]float64 {
	loads, left := map[uint32]float64{}, 1.0
	for p := uint32(0); p <= top; p++ {
		loads[p] = able[p]
		if total > 0 && total < 1 {
			loads[p] = able[p] / total
		}
		loads[p] = min(loads[p], left)
		left -= loads[p]
	}
	if total == 0 {
		loads[0] = 1
	}
	return loads
}

func panics(c *clusterv3.Cluster, healthy map[uint32]float64, total float64) map[uint32]bool {
	threshold := 0.5
	if t := c.GetCommonLbConfig().GetHealthyPanicThreshold(); t != nil {
		threshold = t.GetValue() / 100
	}
	out := map[uint32]bool{}
	for p, h := range healthy {
		out[p] = total < 1 && h < threshold
	}
	return out
}

// spread distributes a priority's load over its hosts.
func spread(c *clusterv3.Cluster, hosts []*host, load float64, panicking bool) {
	usable := slices.DeleteFunc(slices.Clone(hosts), func(h *host) bool { return !h.healthy && !panicking })
	weigh := (*host).share
	if c.GetLbPolicy() == clusterv3.Cluster_RANDOM {
		weigh = func(*host) float64 { return 1 } // weights of localities count, those of hosts do not
	}
	if c.GetCommonLbConfig().GetLocalityWeightedLbConfig() != nil && !panicking {
		weigh = localityShares(hosts, usable, weigh)
	}
	total := 0.0
	for _, h := range usable {
		total += weigh(h)
	}
	for _, h := range usable {
		if total > 0 {
			h.load = load * weigh(h) / total
		}
	}
}

// localityShares weights a host within its locality by weigh, and the locality by its weight and its healthy share.
func localityShares(all, usable []*host, weigh func(*host) float64) func(*host) float64 {
	members, good, sum := map[*endpointv3.LocalityLbEndpoints]float64{}, map[*endpointv3.LocalityLbEndpoints]float64{}, map[*endpointv3.LocalityLbEndpoints]float64{}
	weighted := false
	for _, h := range all {
		members[h.locality]++
		weighted = weighted || h.locality.GetLoadBalancingWeight().GetValue() > 0
	}
	for _, h := range usable {
		good[h.locality]++
		sum[h.locality] += weigh(h)
	}
	if !weighted {
		return weigh
	}
	return func(h *host) float64 {
		able := min(1, 1.4*good[h.locality]/members[h.locality])
		return float64(h.locality.GetLoadBalancingWeight().GetValue()) * able * weigh(h) / sum[h.locality]
	}
}
