package server

import (
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// reportNACK logs and counts a NACK.
func (st *stream) reportNACK(r *request) {
	st.server.log.Warn("proxy refused configuration", "proxy", st.proxy.ID,
		"type", strings.TrimPrefix(string(r.TypeURL), "type.googleapis.com/"), "message", ledger.Shortened(r.Error.Message))
	for t := range resource.Types {
		if resource.Types[t].URL == string(r.TypeURL) {
			st.server.opts.Meter.Rejected(resource.Type(t))
			return // types with the same URL count as the first
		}
	}
}

// refusedVersion is a version of a resource that the proxy of a stream has refused.
type refusedVersion struct {
	typ           resource.Type
	name, version string
}

// dateRefusals records the time of refusals that have none, and forgets what is not held back any more. A version keeps the time
// of its first refusal if it is retried. The stream's lock is held.
func (st *stream) dateRefusals() {
	dated, now := map[refusedVersion]time.Time{}, time.Now()
	for _, t := range st.ledger.Types() {
		for i := range t.Held {
			v := refusedVersion{t.Type, t.Held[i].Name, t.Held[i].Version}
			at, known := st.refusedAt[v]
			if !known {
				at = now
			}
			dated[v] = at
		}
	}
	st.refusedAt = dated
}

// maxTries is how often a temporary refusal is retried: after 2 s, 4 s, 8 s and so on, two minutes in
// all.
const maxTries = 6

// isTemporary reports whether Envoy may accept a refused listener later without a change. Envoy 1.40
// refuses a listener with a plugin while the last module that its agent served for the plugin is
// invalid. The agent may then serve another module, or the module is a file that may be corrected.
func isTemporary(message string) bool {
	return strings.Contains(message, "Unable to create Wasm plugin")
}

// retrySchedule is when a stream sends refused listeners again.
type retrySchedule struct {
	tries int
	next  time.Time
}

// retryRefused sends refused listeners again when it is time. The watchdog calls it, with the stream's
// lock held.
func (st *stream) retryRefused(now time.Time) {
	r := st.retry
	due := r != nil && !now.Before(r.next)
	if st.closed || st.ledger == nil || !st.ledger.Retry(resource.Listener, due, maxTries, isTemporary) {
		st.retry = nil
		return
	}
	switch {
	case r == nil:
		st.retry = &retrySchedule{next: now.Add(watchEvery)}
	case due:
		r.tries++
		r.next = now.Add(watchEvery << r.tries)
		st.step()
	}
}

// maxAbout bounds how many parts of a refused response are listed.
const maxAbout = 64

// refusalKey identifies a refusal. It contains the table, as resources of the same name in other
// tables may be made of other objects.
type refusalKey struct {
	typ           resource.Type
	name, version string
	of            *table.Table
}

// refusals are the refused resources of all streams.
type refusals map[refusalKey]*distribution.Refusal

// Refusals implements distribution.Proxies. A proxy that refuses nothing costs one lock.
func (s *Server) Refusals() []*distribution.Refusal {
	all := refusals{}
	for _, st := range s.streams.all() {
		all.addStream(st)
	}
	out := make([]*distribution.Refusal, 0, len(all))
	for _, r := range all {
		out = append(out, r)
	}
	return out
}

func (all refusals) addStream(st *stream) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil || st.closed || !st.ledger.Refuses() {
		return
	}
	for _, t := range st.ledger.Types() {
		for _, h := range t.Held {
			all.add(st, t.Type, &h)
		}
	}
}

func (all refusals) add(st *stream, typ resource.Type, h *ledger.Held) {
	key := refusalKey{typ, h.Name, h.Version, st.tableOf(typ, h.Name)}
	if r := all[key]; r != nil {
		r.Proxies++
		r.Since = max(r.Since, h.Since())
		r.Message = min(r.Message, h.Message)
		// If a response was refused as a whole, a proxy that accepted its predecessor has the
		// shortest list.
		if len(r.About) > 1 {
			if about := partsOf(st, typ, h); len(about) > 0 && len(about) < len(r.About) {
				r.About = about
			}
		}
		return
	}
	about := partsOf(st, typ, h)
	if len(about) == 0 {
		return // the resource that was refused is gone
	}
	r := &distribution.Refusal{Type: typ, Name: h.Name, Version: h.Version, Message: h.Message, Proxies: 1, Since: h.Since(), About: about}
	if h.Name == ledger.Whole {
		r.Name, r.Version = "", ""
	}
	all[key] = r
}

// tableOf returns the table that has a resource; of a whole response the first one.
func (st *stream) tableOf(typ resource.Type, name string) *table.Table {
	for _, t := range st.tables {
		if name == ledger.Whole || t.State().Get(typ, name) != nil {
			return t
		}
	}
	return nil
}

// partsOf returns what a refusal may be about, as the tables are now.
func partsOf(st *stream, typ resource.Type, h *ledger.Held) []distribution.Part {
	if h.Name == ledger.Whole {
		return newParts(st, typ, "", h.Since())
	}
	for _, t := range st.tables {
		e := t.State().Get(typ, h.Name)
		switch {
		case e == nil:
		case e.Version != h.Version:
			return nil
		case typ == resource.RouteConfig:
			if parts := newParts(st, typ, h.Name, h.Since()); len(parts) > 0 && h.Since() > 0 {
				return parts
			}
			// The header changed, or everything is new to a proxy that connected since.
			return append(newParts(st, typ, h.Name, 0), distribution.Part{Type: typ, Entry: e, Group: t.Group(), Proxy: st.proxy})
		default:
			return []distribution.Part{{Type: typ, Entry: e, Group: t.Group(), Proxy: st.proxy}}
		}
	}
	return nil
}

// newParts returns the resources of a type that came after a revision. For route configurations, or
// one of them if it is named, it returns their virtual hosts.
func newParts(st *stream, typ resource.Type, routeConfig string, since model.Revision) []distribution.Part {
	of := typ
	if typ == resource.RouteConfig {
		of = resource.VirtualHost
	}
	var out []distribution.Part
	for _, t := range st.tables {
		for e := range t.State().Changed(of, since) {
			if routeConfig != "" && !strings.HasPrefix(e.Name, routeConfig+"/") {
				continue
			}
			if out = append(out, distribution.Part{Type: of, Entry: e, Group: t.Group(), Proxy: st.proxy}); len(out) == maxAbout {
				return out
			}
		}
	}
	return out
}
