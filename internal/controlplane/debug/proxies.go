package debug

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// ProxyList is the body of /debug/proxies.
type ProxyList struct {
	Now     time.Time           `json:"now"`
	Proxies []server.ProxyState `json:"proxies"`
	LeftOut int                 `json:"leftOut,omitempty"` // what did not fit into an answer to a peer
	// Others are the other control planes that were asked; their proxies are in the list. nil: there are no
	// others, or they were not asked.
	Others []explain.PeerQuery `json:"controlPlanes,omitempty"`
}

// ProxyDetail is the body of /debug/proxies/{id}.
type ProxyDetail struct {
	Now   time.Time         `json:"now"`
	Proxy server.ProxyState `json:"proxy"`
	Node  *model.Proxy      `json:"node,omitempty"` // metadata from the proxy
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
	list := ProxyList{Now: time.Now(), Proxies: connected(h.stages.Proxies, h.stages.Changes)}
	if h.everywhere(r) {
		aboutAll(w)
		list.join(askAll[ProxyList](r.Context(), askTimeout, h.stages.Peers, MethodProxies, struct{}{}))
	}
	return list
}

// connected returns the proxies of this control plane.
func connected(all Proxies, changes Changes) []server.ProxyState {
	list := all.Proxies()
	if list == nil {
		list = []server.ProxyState{}
	}
	for i := range list {
		judge(changes, &list[i])
	}
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
		reply(w, ProxyDetail{time.Now(), p, p.Proxy})
		return
	}
	if h.everywhere(r) {
		aboutAll(w)
		d, silent := h.proxyElsewhere(r.Context(), id)
		if d != nil {
			reply(w, d)
			return
		}
		if len(silent) > 0 {
			next = "it may be connected to a control plane that does not answer: " + strings.Join(silent, ", ")
		}
	}
	disconnected(w, fmt.Sprintf("proxy %q is not connected", id), next)
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
