package server

import (
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Departed is a proxy whose stream has ended, and that has not connected again. If its
// process lives, it goes on with what it had.
type Departed struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	IPs       []string       `json:"ips,omitempty"`
	Since     time.Time      `json:"since"`
	Settled   model.Revision `json:"settled"` // what it had

	proxy  *model.Proxy
	tables []string
}

// Bounds of what is remembered of proxies that have gone. One that stays away for so long
// is not coming back.
const (
	maxDeparted = 4096
	departedFor = time.Hour
)

// departures remembers proxies that have gone: the newest maxDeparted.
type departures struct {
	mu    sync.Mutex // guards the fields
	byID  map[string]*Departed
	order []*Departed // oldest first; some are not in byID any more. At most 2*maxDeparted
}

// add notes the end of a stream.
func (d *departures) add(st *stream, now time.Time) {
	p := &Departed{ID: st.proxy.ID, Name: st.proxy.Name, Namespace: st.proxy.Namespace, IPs: st.proxy.IPs, Since: now, proxy: st.proxy}
	st.mu.Lock()
	if st.ledger != nil {
		p.Settled = max(st.ledger.Settled(), st.account.before)
	}
	for _, t := range st.tables {
		p.tables = append(p.tables, t.Name())
	}
	st.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byID == nil {
		d.byID = map[string]*Departed{}
	}
	d.byID[p.ID] = p
	d.order = append(d.order, p)
	d.forget(now)
}

// forget drops the oldest that are too many or too old.
func (d *departures) forget(now time.Time) {
	for len(d.order) > 0 {
		oldest := d.order[0]
		there := d.byID[oldest.ID] == oldest
		if there && len(d.byID) <= maxDeparted && now.Sub(oldest.Since) <= departedFor {
			break
		}
		if there {
			delete(d.byID, oldest.ID)
		}
		d.order = d.order[1:]
	}
	if len(d.order) >= 2*maxDeparted {
		d.order = slices.DeleteFunc(d.order, func(p *Departed) bool { return d.byID[p.ID] != p })
	}
}

// back forgets a proxy that has connected again, and tells what it had when it left; 0
// where that is not known.
func (d *departures) back(id string) model.Revision {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.byID[id]
	if p == nil {
		return 0
	}
	delete(d.byID, id)
	return p.Settled
}

// all are the proxies that have gone, in the order in which they went.
func (d *departures) all() []Departed {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]Departed, 0, len(d.byID))
	for _, p := range d.order {
		if d.byID[p.ID] == p {
			out = append(out, *p)
		}
	}
	return out
}

// Departed lists the proxies that have gone and not come back.
func (s *Server) Departed() []Departed {
	gone := s.departed.all()
	if len(gone) == 0 {
		return nil
	}
	connected := map[string]bool{} // an old stream may end after the new one has begun
	for _, st := range s.streams.all() {
		connected[st.proxy.ID] = true
	}
	return slices.DeleteFunc(gone, func(p Departed) bool { return connected[p.ID] })
}

// without are those that left without a revision that touched their tables, or what may
// have been theirs.
func (sv *survey) without(gone []Departed) []Whereabouts {
	byName := map[string]*touched{}
	for t := range sv.tables {
		byName[t.Name()] = sv.of(t)
	}
	var out []Whereabouts
	for _, p := range gone {
		if p.Settled >= sv.Revision || !sv.concernsAny(p.proxy) || !p.concerned(byName) {
			continue
		}
		out = append(out, Whereabouts{ID: p.ID, Name: p.Name, Namespace: p.Namespace, Position: PositionDisconnected,
			Reasons: []Reason{{Cause: CauseDisconnected, Since: p.Since}}})
	}
	return out
}

// concerned tells whether tables that a proxy was bound to were touched; also where nobody
// is bound to them any more, so that it is not known.
func (p *Departed) concerned(tables map[string]*touched) bool {
	return slices.ContainsFunc(p.tables, func(name string) bool {
		t, known := tables[name]
		return !known || t.count > 0
	})
}
