package server

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Proxies returns the connected proxies, sorted by name.
func (s *Server) Proxies() []ProxyState {
	var out []ProxyState
	for _, st := range s.streams.proxies() {
		out = append(out, st.stateWith(st.asking()))
	}
	slices.SortFunc(out, func(a, b ProxyState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Stream, b.Stream))
	})
	return out
}

// Proxy returns the newest stream of a proxy, by node ID or "name.namespace", or by name alone if
// no other namespace has a proxy of that name.
func (s *Server) Proxy(id string) (ProxyState, bool) {
	newest := s.find(id)
	if newest == nil {
		return ProxyState{}, false
	}
	return newest.stateWith(newest.asking()), true
}

// find returns the newest stream of a proxy, by node ID or "name.namespace", or by name alone if
// the proxies with this name are all in one namespace; nil: there is none.
func (s *Server) find(id string) *stream {
	var newest, named *stream
	several := false
	for _, st := range s.streams.proxies() {
		switch {
		case st.proxy.ID == id || st.proxy.String() == id:
			newest = newer(newest, st)
		case st.proxy.Name == id:
			several = several || named != nil && named.proxy.Namespace != st.proxy.Namespace
			named = newer(named, st)
		}
	}
	if newest == nil && !several {
		return named
	}
	return newest
}

func newer(a, b *stream) *stream {
	if a == nil || a.number < b.number {
		return b
	}
	return a
}

// stateWith is state, together with the stream on which the proxy asks for clusters; nil: there is none.
func (st *stream) stateWith(asks *stream) ProxyState {
	p := st.state()
	if asks == nil {
		return p
	}
	of := asks.state()
	p.Settled, p.Unread = min(p.Settled, of.Settled), p.Unread || of.Unread
	p.Pending = max(p.Pending, of.Pending)
	if p.OldestPending == 0 || of.OldestPending > 0 && of.OldestPending < p.OldestPending {
		p.OldestPending = of.OldestPending
	}
	for _, t := range of.Types {
		t.Type = askedType
		p.Types = append(p.Types, t)
	}
	return p
}

// askedType names the clusters that a proxy asks for by name.
const askedType = "ODCDS"

// state returns the state of the stream, for reports.
func (st *stream) state() ProxyState {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.lockedState()
}

// lockedState is state. The caller holds the stream's lock.
func (st *stream) lockedState() ProxyState {
	p := ProxyState{
		ID: st.proxy.ID, Name: st.proxy.Name, Namespace: st.proxy.Namespace, Stream: st.number, Proxy: st.proxy,
		Peer: st.transport.peer(), Connected: st.connected, Protocol: st.protocol.String(), Strategy: RouteStrategy(st.strategy.Name),
		Version: st.proxy.EnvoyVersion, Revision: st.server.opts.Revision, IstioVersion: st.proxy.IstioVersion, Cluster: st.proxy.ClusterID,
		Workload: st.proxy.Workload(),
		Tables:   []string{}, Types: []TypeState{}, // JSON has lists, also before the first request
	}
	if st.ledger == nil {
		return p
	}
	for _, t := range st.tables {
		p.Tables = append(p.Tables, t.Name())
	}
	if st.strategy.Scopes && !st.hasScopes() {
		p.Strategy = RoutesVHDS
	}
	p.Settled = st.ledger.Settled()
	p.Pending, p.OldestPending = st.pending.count()
	p.Unread = st.delivery.unread() > 0
	for _, t := range st.ledger.Types() {
		ts := TypeState{Type: t.Type.String(), Wildcard: t.Wildcard, Subscribed: t.Subscribed, Sent: t.Sent, ACKed: t.ACKed,
			InFlightSince: st.delivery.inFlight(t.Type).since, Waiting: t.Waiting, Version: t.Version}
		for _, h := range t.Held {
			ts.Held = append(ts.Held, Held{Name: h.Name, Version: h.Version, Message: h.Message, Since: st.refusedAt[refusedVersion{t.Type, h.Name, h.Version}]})
		}
		p.Types = append(p.Types, ts)
	}
	return p
}

// Intended implements distribution.Proxies.
func (s *Server) Intended(id string, types ...resource.Type) (*model.Proxy, []distribution.Intended, bool) {
	st := s.find(id)
	if st == nil {
		return nil, nil, false
	}
	var out []distribution.Intended
	for _, typ := range types {
		of, ok := st.intended(typ)
		if !ok {
			return nil, nil, false
		}
		out = append(out, of...)
		if asks := st.asking(); asks != nil && typ == resource.Cluster {
			of, _ = asks.intended(typ)
			out = append(out, of...)
		}
	}
	return st.proxy, out, true
}

// intended is Intended for one stream and type.
func (st *stream) intended(typ resource.Type) (out []distribution.Intended, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil || st.closed {
		return nil, false
	}
	for _, t := range st.tables {
		s := t.State()
		for e := range s.All(typ) {
			i := distribution.Intended{Type: typ, Entry: e, State: s, Status: st.ledger.Status(typ, e.Name)}
			if i.Status == ledger.NotSubscribed {
				continue
			}
			if h := st.ledger.Refusal(typ, e.Name); h != nil {
				i.Message = h.Message
			}
			out = append(out, i)
		}
	}
	return out, true
}

// ProxyAt implements distribution.Proxies.
func (s *Server) ProxyAt(ip string) (id string, ok bool) {
	for _, st := range s.streams.proxies() {
		if slices.Contains(st.proxy.IPs, ip) {
			return st.proxy.ID, true
		}
	}
	return "", false
}

// Connected implements distribution.Proxies.
func (s *Server) Connected(ids []string) []string {
	there := s.present()
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !there[id] })
}

// SidecarOf implements distribution.Proxies. Tables have the objects that group their proxies.
func (s *Server) SidecarOf(id string) (model.Key, bool) {
	st := s.find(id)
	if st == nil {
		return model.Key{}, false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, t := range st.tables {
		for _, k := range t.Group().Keys() {
			if k.Kind == model.KindSidecar {
				return k, true
			}
		}
	}
	return model.Key{}, false
}
