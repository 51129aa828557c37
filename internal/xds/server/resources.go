package server

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Intended lists what a proxy is to have of some types, as the tables are now: by type, then
// by table, then by name. false: no such proxy is connected.
func (s *Server) Intended(id string, types ...resource.Type) (*model.Proxy, []distribution.Intended, bool) {
	st := s.find(id)
	if st == nil {
		return nil, nil, false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil || st.closed {
		return nil, nil, false
	}
	var out []distribution.Intended
	for _, typ := range types {
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
	}
	return st.proxy, out, true
}

// find gives the newest stream of a proxy, by node id or "name.namespace", or by its name alone
// where proxies of one namespace have it; nil: none.
func (s *Server) find(id string) *stream {
	var newest, named *stream
	several := false
	for _, st := range s.streams.all() {
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

// ProxyAt gives the node id of the proxy that has an address; false: none is connected.
func (s *Server) ProxyAt(ip string) (id string, ok bool) {
	for _, st := range s.streams.all() {
		if slices.Contains(st.proxy.IPs, ip) {
			return st.proxy.ID, true
		}
	}
	return "", false
}

// Connected gives those of some node ids that are connected.
func (s *Server) Connected(ids []string) []string {
	there := map[string]bool{}
	for _, st := range s.streams.all() {
		there[st.proxy.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !there[id] })
}

// SidecarOf implements distribution.Proxies: tables have the objects that group their proxies.
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
