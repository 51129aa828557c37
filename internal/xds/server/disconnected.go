package server

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// disconnectedProxy is a proxy whose stream ended, and the tables that the stream was bound to.
type disconnectedProxy struct {
	distribution.Disconnected
	proxy *model.Proxy // only what Query.Selects reads: type, name, namespace and labels
	last  ProxyState   // of the stream; its Tables are the names of the tables
	size  int          // approximate bytes of its strings and lists
}

// Bounds for the proxies that are remembered. A proxy that stays away for rememberFor is not
// expected back.
const (
	maxDisconnected      = 4096
	maxDisconnectedBytes = 32 << 20
	rememberFor          = time.Hour
)

// disconnectedProxies has the newest proxies that disconnected, each once, within the bounds.
type disconnectedProxies struct {
	mu    sync.Mutex // guards the fields
	byID  map[string]*list.Element
	order list.List // of *disconnectedProxy, oldest first
	bytes int       // sum of their sizes
}

// add records the end of a stream, with its last state. The caller holds the stream's lock.
func (d *disconnectedProxies) add(st *stream, last ProxyState, now time.Time) {
	p := newDisconnected(st.proxy, last, now)
	if st.ledger != nil {
		p.Settled = max(st.ledger.Settled(), st.pending.before)
	}
	p.last.Settled, p.last.Tables = p.Settled, []string{}
	for _, t := range st.tables {
		p.last.Tables = append(p.last.Tables, t.Name())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byID == nil {
		d.byID = map[string]*list.Element{}
	}
	d.remove(d.byID[p.ID])
	d.byID[p.ID] = d.order.PushBack(p)
	d.bytes += p.size
	d.forget(now)
}

// newDisconnected returns what is remembered of a proxy.
func newDisconnected(p *model.Proxy, last ProxyState, now time.Time) *disconnectedProxy {
	last.Proxy, last.DisconnectedSince, last.Status = nil, now, ProxyDisconnected
	out := &disconnectedProxy{
		Disconnected: distribution.Disconnected{ID: p.ID, Name: p.Name, Namespace: p.Namespace, IPs: p.IPs, Since: now},
		proxy:        &model.Proxy{Type: p.Type, Name: p.Name, Namespace: p.Namespace, Labels: p.Labels},
		last:         last,
	}
	out.size = len(p.ID) + len(p.Name) + len(p.Namespace) + textSize(p.Labels)
	for _, a := range p.IPs {
		out.size += len(a)
	}
	const eachType = 200 // bytes of a TypeState
	for i := range last.Types {
		out.size += eachType + len(last.Types[i].Waiting)
		for _, h := range last.Types[i].Held {
			out.size += len(h.Name) + len(h.Version) + len(h.Message)
		}
	}
	return out
}

// remove forgets a proxy. It does nothing for nil. The caller holds mu.
func (d *disconnectedProxies) remove(e *list.Element) {
	if e == nil {
		return
	}
	p := d.order.Remove(e).(*disconnectedProxy)
	delete(d.byID, p.ID)
	d.bytes -= p.size
}

// forget drops the oldest proxies that are too many, too large together, or too old.
func (d *disconnectedProxies) forget(now time.Time) {
	for e := d.order.Front(); e != nil; e = d.order.Front() {
		old := now.Sub(e.Value.(*disconnectedProxy).Since) > rememberFor
		if !old && d.order.Len() <= maxDisconnected && d.bytes <= maxDisconnectedBytes {
			return
		}
		d.remove(e)
	}
}

// settled returns what a proxy had when it disconnected; 0: unknown.
func (d *disconnectedProxies) settled(id string) model.Revision {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.byID[id]; e != nil {
		return e.Value.(*disconnectedProxy).Settled
	}
	return 0
}

// back forgets a proxy that connected again.
func (d *disconnectedProxies) back(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(d.byID[id])
}

// all returns the proxies in the order in which they disconnected.
func (d *disconnectedProxies) all() []*disconnectedProxy {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*disconnectedProxy, 0, d.order.Len())
	for e := d.order.Front(); e != nil; e = e.Next() {
		out = append(out, e.Value.(*disconnectedProxy))
	}
	return out
}

// Away reports whether none of these proxies has connected again since it disconnected. It takes no
// stream's lock.
func (s *Server) Away(ids []string) bool {
	d := &s.disconnected
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.ContainsFunc(ids, func(id string) bool { return d.byID[id] == nil })
}

// Disconnected implements distribution.Proxies.
func (s *Server) Disconnected() []distribution.Disconnected {
	gone := s.disconnected.all()
	if len(gone) > 0 {
		gone = absent(gone, s.present())
	}
	out := make([]distribution.Disconnected, len(gone))
	for i, p := range gone {
		out[i] = p.Disconnected
	}
	return out
}

// LastStates returns what was known of the proxies of Disconnected when they disconnected, and what has changed for them since.
func (s *Server) LastStates() []ProxyState {
	gone := s.disconnected.all()
	if len(gone) == 0 {
		return nil
	}
	gone = absent(gone, s.present())
	tables := map[string]*table.Table{}
	for _, st := range s.streams.proxies() {
		st.mu.Lock()
		for _, t := range st.tables {
			tables[t.Name()] = t
		}
		st.mu.Unlock()
	}
	out := make([]ProxyState, len(gone))
	for i, p := range gone {
		out[i] = p.last
		out[i].Types = slices.Clone(p.last.Types)
		for _, name := range p.last.Tables {
			if t := tables[name]; t != nil {
				out[i].compare(t.State())
			}
		}
	}
	return out
}

// compare counts what has changed in a table since the proxy disconnected.
func (p *ProxyState) compare(s *table.State) {
	for i := range p.Types {
		t := &p.Types[i]
		typ := slices.IndexFunc(resource.Types[:], func(of resource.Info) bool { return of.Type.String() == t.Type })
		if typ < 0 || !t.InUse() {
			continue
		}
		for range s.Changed(resource.Types[typ].Type, p.Settled) {
			t.Lacks++
		}
		for range s.Removed(resource.Types[typ].Type, p.Settled) {
			t.Lacks++
		}
	}
}

// present returns the node IDs of the proxies that count as connected.
func (s *Server) present() map[string]bool {
	out := map[string]bool{}
	for _, st := range s.streams.proxies() {
		if st.present.Load() {
			out[st.proxy.ID] = true
		}
	}
	return out
}

// absent returns those of the disconnected proxies that have no stream. An old stream may end after the new one began.
func absent(gone []*disconnectedProxy, present map[string]bool) []*disconnectedProxy {
	return slices.DeleteFunc(gone, func(p *disconnectedProxy) bool { return present[p.ID] })
}

// eachOnce returns the proxies of two lists, each once.
func eachOnce(a, b []*disconnectedProxy) []*disconnectedProxy {
	if len(a) == 0 {
		return b
	}
	has := map[string]bool{}
	for _, p := range b {
		has[p.ID] = true
	}
	return append(absent(a, has), b...)
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
	return slices.ContainsFunc(p.last.Tables, func(name string) bool {
		if t, known := tables[name]; known {
			return t.about > 0
		}
		return q.Selects == nil || q.Selects(p.proxy)
	})
}
