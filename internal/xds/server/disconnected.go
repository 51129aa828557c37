package server

import (
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// disconnectedProxy is a proxy whose stream ended, and the tables that the stream was bound to.
type disconnectedProxy struct {
	distribution.Disconnected
	proxy  *model.Proxy
	tables []string // names
}

// Bounds for the proxies that are remembered. A proxy that stays away for rememberFor is not
// expected back.
const (
	maxDisconnected = 4096
	rememberFor     = time.Hour
)

// disconnectedProxies has the newest maxDisconnected proxies that disconnected.
type disconnectedProxies struct {
	mu    sync.Mutex // guards the fields
	byID  map[string]*disconnectedProxy
	order []*disconnectedProxy // oldest first, at most 2*maxDisconnected; some are no longer in byID
}

// add records the end of a stream.
func (d *disconnectedProxies) add(st *stream, now time.Time) {
	p := &disconnectedProxy{proxy: st.proxy, Disconnected: distribution.Disconnected{
		ID: st.proxy.ID, Name: st.proxy.Name, Namespace: st.proxy.Namespace, IPs: st.proxy.IPs, Since: now}}
	st.mu.Lock()
	if st.ledger != nil {
		p.Settled = max(st.ledger.Settled(), st.pending.before)
	}
	for _, t := range st.tables {
		p.tables = append(p.tables, t.Name())
	}
	st.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byID == nil {
		d.byID = map[string]*disconnectedProxy{}
	}
	d.byID[p.ID] = p
	d.order = append(d.order, p)
	d.forget(now)
}

// forget drops the oldest proxies that are too many or too old.
func (d *disconnectedProxies) forget(now time.Time) {
	for len(d.order) > 0 {
		oldest := d.order[0]
		there := d.byID[oldest.ID] == oldest
		if there && len(d.byID) <= maxDisconnected && now.Sub(oldest.Since) <= rememberFor {
			break
		}
		if there {
			delete(d.byID, oldest.ID)
		}
		d.order = d.order[1:]
	}
	if len(d.order) >= 2*maxDisconnected {
		d.order = slices.DeleteFunc(d.order, func(p *disconnectedProxy) bool { return d.byID[p.ID] != p })
	}
}

// back forgets a proxy that connected again, and returns what it had when it disconnected; 0:
// unknown.
func (d *disconnectedProxies) back(id string) model.Revision {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.byID[id]
	if p == nil {
		return 0
	}
	delete(d.byID, id)
	return p.Settled
}

// all returns the proxies in the order in which they disconnected.
func (d *disconnectedProxies) all() []*disconnectedProxy {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*disconnectedProxy, 0, len(d.byID))
	for _, p := range d.order {
		if d.byID[p.ID] == p {
			out = append(out, p)
		}
	}
	return out
}

// Disconnected implements distribution.Proxies.
func (s *Server) Disconnected() []distribution.Disconnected {
	gone := s.notConnected()
	out := make([]distribution.Disconnected, len(gone))
	for i, p := range gone {
		out[i] = p.Disconnected
	}
	return out
}

// notConnected returns the remembered proxies that have no stream, in the order in which they
// disconnected. An old stream may end after the new one began.
func (s *Server) notConnected() []*disconnectedProxy {
	gone := s.disconnected.all()
	if len(gone) == 0 {
		return nil
	}
	connected := map[string]bool{}
	for _, st := range s.streams.all() {
		connected[st.proxy.ID] = true
	}
	return slices.DeleteFunc(gone, func(p *disconnectedProxy) bool { return connected[p.ID] })
}

// without returns the proxies that disconnected without a revision that changed their tables, or
// that may have.
func (q *distributionQuery) without(gone []*disconnectedProxy) []distribution.ProxySyncStatus {
	byName := map[string]*touched{}
	for t := range q.tables {
		byName[t.Name()] = q.of(t)
	}
	var out []distribution.ProxySyncStatus
	for _, p := range gone {
		if p.Settled >= q.Revision || !p.concerned(q.Query, byName) {
			continue
		}
		out = append(out, distribution.ProxySyncStatus{ID: p.ID, Name: p.Name, Namespace: p.Namespace, Position: distribution.StateDisconnected,
			Reasons: []distribution.Reason{{Cause: distribution.CauseDisconnected, Since: p.Since}}})
	}
	return out
}

// concerned reports whether the query is about a table that the proxy was bound to. If no connected
// proxy is bound to the table, its content is unknown, and the object decides.
func (p *disconnectedProxy) concerned(q *distribution.Query, tables map[string]*touched) bool {
	return slices.ContainsFunc(p.tables, func(name string) bool {
		if t, known := tables[name]; known {
			return t.about > 0
		}
		return q.Selects == nil || q.Selects(p.proxy)
	})
}
