package server

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Holders implements distribution.Proxies. It costs little while every proxy has ACKed its
// endpoints.
func (s *Server) Holders(gone []distribution.GoneEndpoint) []distribution.Holder {
	if len(gone) == 0 {
		return nil
	}
	search := &staleSearch{gone: gone, names: map[*table.Table]map[string][]string{}, listed: map[*table.Entry]map[string]bool{}}
	var out []distribution.Holder
	for _, st := range s.streams.proxies() {
		out = append(out, search.holders(st)...)
	}
	return out
}

// staleSearch answers one query.
type staleSearch struct {
	gone   []distribution.GoneEndpoint
	names  map[*table.Table]map[string][]string // EDS resources by host
	listed map[*table.Entry]map[string]bool     // addresses that receive requests
}

// of returns the names of a host's EDS resources in a table.
func (l *staleSearch) of(t *table.Table, host string) []string {
	byHost := l.names[t]
	if byHost == nil {
		byHost = map[string][]string{}
		for e := range t.State().All(resource.Endpoints) {
			h := e.Resource().Host
			byHost[h] = append(byHost[h], e.Name)
		}
		l.names[t] = byHost
	}
	return byHost[host]
}

// lists reports whether a resource has an address that receives requests.
func (l *staleSearch) lists(e *table.Entry, address string) bool {
	have := l.listed[e]
	if have == nil {
		have = map[string]bool{}
		a := &endpointv3.ClusterLoadAssignment{}
		if proto.Unmarshal(e.Resource().Value(), a) == nil {
			receivers(a, have)
		}
		l.listed[e] = have
	}
	return have[address]
}

// receivers adds the addresses that receive requests.
func receivers(a *endpointv3.ClusterLoadAssignment, into map[string]bool) {
	for _, l := range a.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if h := e.GetHealthStatus(); h == corev3.HealthStatus_UNKNOWN || h == corev3.HealthStatus_HEALTHY {
				into[e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()] = true
			}
		}
	}
}

// holders returns the endpoints that the proxy of a stream may still have.
func (l *staleSearch) holders(st *stream) []distribution.Holder {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil || st.closed || !st.ledger.Behind(resource.Endpoints) {
		return nil
	}
	var out []distribution.Holder
	for i := len(l.gone) - 1; i >= 0; i-- {
		g := &l.gone[i]
		if g.Revision <= st.ledger.Settled() && st.pending.before == 0 {
			break
		}
		// A proxy that connected later has it only if it had it before.
		if st.connected.After(g.Since) && (st.pending.before == 0 || st.pending.before >= g.Revision) {
			continue
		}
		for _, cluster := range l.clustersWith(st, g) {
			out = append(out, distribution.Holder{ID: st.proxy.ID, Name: st.proxy.Name, Namespace: st.proxy.Namespace, Cluster: cluster, Endpoint: g, Reasons: st.endpointReasons()})
		}
	}
	return out
}

// clustersWith returns the clusters in which the proxy may have an endpoint that is gone.
func (l *staleSearch) clustersWith(st *stream, g *distribution.GoneEndpoint) []string {
	var out []string
	for _, t := range st.tables {
		for _, host := range g.Hosts {
			for _, name := range l.of(t, host) {
				if st.ledger.Status(resource.Endpoints, name) == ledger.NotSubscribed || st.ledger.HasSince(resource.Endpoints, name, g.Revision) {
					continue
				}
				if e := t.State().Get(resource.Endpoints, name); e != nil && !l.lists(e, g.Address) {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// endpointReasons returns why the endpoints of a stream are behind.
func (st *stream) endpointReasons() []distribution.Reason {
	for _, t := range st.ledger.Types() {
		if t.Type == resource.Endpoints {
			if len(t.Held) > 0 {
				return []distribution.Reason{{Cause: distribution.CauseRefused, Type: t.Type.String(), Names: []string{t.Held[0].Name}, Text: t.Held[0].Message}}
			}
			return []distribution.Reason{st.reason(&t)}
		}
	}
	return nil
}

// OldestUnanswered implements distribution.Proxies.
func (s *Server) OldestUnanswered() time.Time {
	var oldest time.Time
	for _, st := range s.streams.all() {
		st.mu.Lock()
		for t := range resource.NumTypes {
			if at := st.delivery.inFlight(t).since; !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
				oldest = at
			}
		}
		st.mu.Unlock()
	}
	return oldest
}
