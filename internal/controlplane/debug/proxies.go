package debug

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// ProxyList is the body of /debug/proxies.
type ProxyList struct {
	Now     time.Time           `json:"now"`
	Proxies []server.ProxyState `json:"proxies"`
	// Disconnected are proxies that have disconnected and may still run, in the state that they had then. See
	// explain.Explainer.Disconnected. An answer about one of several control planes does not have them: they may be connected to
	// another.
	Disconnected []server.ProxyState `json:"disconnected,omitempty"`
	LeftOut      int                 `json:"leftOut,omitempty"` // what did not fit into an answer to a peer
	// Others are the other control planes that were asked; their proxies are in the list. nil: there are no
	// others, or they were not asked.
	Others []explain.PeerQuery `json:"controlPlanes,omitempty"`
}

// ProxyDetail is the body of /debug/proxies/{id}.
type ProxyDetail struct {
	Now   time.Time         `json:"now"`
	Proxy server.ProxyState `json:"proxy"`
	Node  *model.Proxy      `json:"node,omitempty"` // metadata from the proxy
	// Silent are control planes that do not answer. A disconnected proxy may be connected to one of them.
	Silent []string `json:"silent,omitempty"`
}

func (h *handler) proxies(w http.ResponseWriter, r *http.Request) {
	if h.stages.Proxies == nil {
		absent(w, "proxies")
		return
	}
	reply(w, h.proxyList(w, r))
}

// proxyList returns the proxies that a request is about.
func (h *handler) proxyList(w http.ResponseWriter, r *http.Request) ProxyList {
	q := proxiesQuestion{Disconnected: r.URL.Query().Has("disconnected")}
	if !h.everywhere(r) {
		list := ownProxies(h.stages.Proxies, h.stages.Changes, h.stages.Explain, q)
		if h.stages.Peers != nil && len(h.stages.Peers.All()) > 0 {
			list.Disconnected = nil
		}
		return list
	}
	aboutAll(w)
	return h.proxiesOfAll(r.Context(), q)
}

// proxiesOfAll returns the proxies of all control planes.
func (h *handler) proxiesOfAll(ctx context.Context, q proxiesQuestion) ProxyList {
	list := ownProxies(h.stages.Proxies, h.stages.Changes, h.stages.Explain, q)
	list.join(askAll[ProxyList](ctx, askTimeout, h.stages.Peers, MethodProxies, q))
	if len(list.Disconnected) > 0 {
		var ids []string
		for i := range list.Disconnected {
			ids = append(ids, list.Disconnected[i].ID)
		}
		list.leaveOut(h.returned(ctx, askTimeout, ids))
	}
	return list
}

// leaveOut removes disconnected proxies that are connected to another control plane. If a proxy has left several, it keeps the one
// that it left last.
func (l *ProxyList) leaveOut(connected map[string]bool) {
	slices.SortStableFunc(l.Disconnected, func(a, b server.ProxyState) int { return b.DisconnectedSince.Compare(a.DisconnectedSince) })
	seen := maps.Clone(connected)
	l.Disconnected = slices.DeleteFunc(l.Disconnected, func(p server.ProxyState) bool {
		again := seen[p.ID]
		seen[p.ID] = true
		return again
	})
	slices.SortStableFunc(l.Disconnected, func(a, b server.ProxyState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// ownProxies returns the proxies of this control plane. Disconnected ones are unknown without an explainer.
func ownProxies(all Proxies, changes Changes, x *explain.Explainer, q proxiesQuestion) ProxyList {
	list := ProxyList{Now: time.Now(), Proxies: []server.ProxyState{}}
	if !q.Disconnected {
		list.Proxies = connected(all, changes, x)
	}
	if x == nil {
		return list
	}
	living := map[string]bool{}
	for _, p := range x.Disconnected() {
		living[p.ID] = true
	}
	if len(living) == 0 {
		return list
	}
	for _, p := range all.LastStates() {
		if living[p.ID] {
			list.Disconnected = append(list.Disconnected, p)
		}
	}
	list.leaveOut(map[string]bool{})
	return list
}

// connected returns the proxies of this control plane.
func connected(all Proxies, changes Changes, causes *explain.Explainer) []server.ProxyState {
	list := all.Proxies()
	if list == nil {
		list = []server.ProxyState{}
	}
	for i := range list {
		judge(changes, &list[i])
	}
	blame(causes, list)
	return list
}

func (h *handler) proxy(w http.ResponseWriter, r *http.Request) {
	if h.stages.Proxies == nil {
		absent(w, "proxies")
		return
	}
	id, next := r.PathValue("id"), ""
	p, ok := h.stages.Proxies.Proxy(id)
	if ok {
		aboutAll(w) // a proxy is connected to one control plane
		judge(h.stages.Changes, &p)
		blame(h.stages.Explain, []server.ProxyState{p})
		reply(w, ProxyDetail{Now: time.Now(), Proxy: p, Node: p.Proxy})
		return
	}
	if h.everywhere(r) {
		aboutAll(w)
		d, silent := h.proxyElsewhere(r.Context(), id)
		if d == nil {
			d = h.lastOf(w, r, id, silent)
		}
		if d != nil {
			reply(w, d)
			return
		}
		if len(silent) > 0 {
			next = "it may be connected to a control plane that does not answer: " + strings.Join(silent, ", ")
		}
	}
	if !h.everywhere(r) {
		if d := h.lastOf(w, r, id, nil); d != nil {
			reply(w, d)
			return
		}
	}
	disconnected(w, fmt.Sprintf("proxy %q is not connected", id), next)
}

// lastOf returns the last state of a proxy that has disconnected, by node ID, name.namespace, or a name that no other namespace
// has; nil: none is known.
func (h *handler) lastOf(w http.ResponseWriter, r *http.Request, id string, silent []string) *ProxyDetail {
	r = r.Clone(r.Context())
	q := r.URL.Query()
	q.Set("disconnected", "")
	r.URL.RawQuery = q.Encode()
	list := h.proxyList(w, r)
	var found []*server.ProxyState
	for i := range list.Disconnected {
		p := &list.Disconnected[i]
		switch id {
		case p.ID, p.Name + "." + p.Namespace:
			return &ProxyDetail{Now: list.Now, Proxy: *p, Silent: silent}
		case p.Name:
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return &ProxyDetail{Now: list.Now, Proxy: *found[0], Silent: silent}
}

// judge sets the status of a proxy, and the time since which it is behind, if the change log has it.
func judge(changes Changes, p *server.ProxyState) {
	p.Status = p.Judge()
	if changes == nil || p.OldestPending == 0 {
		return
	}
	if c, ok := changes.Change(p.OldestPending); ok {
		p.BehindSince = c.Times.Published
	}
}

// blame adds the objects that refused resources are refused for.
func blame(x *explain.Explainer, list []server.ProxyState) {
	if x == nil || !slices.ContainsFunc(list, func(p server.ProxyState) bool { return p.Refused() > 0 }) {
		return
	}
	blames := x.Blames()
	for i := range list {
		for j := range list[i].Types {
			t := &list[i].Types[j]
			for n := range t.Held {
				h := &t.Held[n]
				version := explain.RefusedVersion{Type: t.Type, Name: h.Name, Version: h.Version}
				if h.Name == ledger.Whole {
					version.Name, version.Version = "", ""
				}
				h.By = blames[version]
			}
		}
	}
}
