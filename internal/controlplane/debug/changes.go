package debug

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// ChangeList is the body of /debug/changes.
type ChangeList struct {
	Now     time.Time          `json:"now"` // by the control plane's clock
	Newest  model.Revision     `json:"newest"`
	Changes []changelog.Change `json:"changes"` // newest first
}

// defaultChanges is the default of ?n=.
const defaultChanges = 100

func (h *handler) changes(w http.ResponseWriter, r *http.Request) {
	if h.stages.Changes == nil {
		absent(w, "changes")
		return
	}
	n, err := queryUint(r, "n", defaultChanges)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	after, err := queryUint(r, "after", 0)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	list := ChangeList{Now: time.Now(), Newest: h.stages.Changes.Newest(), Changes: []changelog.Change{}}
	for c := range h.stages.Changes.Changes() {
		if uint64(len(list.Changes)) >= n || c.Revision <= model.Revision(after) {
			break
		}
		list.Changes = append(list.Changes, c)
	}
	reply(w, list)
}

// change explains one revision. It covers the proxies of this control plane: others count their own revisions.
func (h *handler) change(w http.ResponseWriter, r *http.Request) {
	if h.stages.Explain == nil {
		absent(w, "changes")
		return
	}
	rev, err := strconv.ParseUint(r.PathValue("revision"), 10, 64)
	if err != nil {
		fail(w, http.StatusBadRequest, fmt.Sprintf("revision %q: use a whole number", r.PathValue("revision")), "")
		return
	}
	most, err := queryUint(r, "max", defaultProxies)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	e, ok := h.stages.Explain.Revision(model.Revision(rev), explain.Ask{All: r.URL.Query().Has("all"), Max: int(min(most, maxProxies))})
	if !ok {
		notFound(w, Failure{
			Error: fmt.Sprintf("revision %d: not in the change log", rev), Next: "see 'moonsail changes' for the changes that it has", Page: "/debug/changes",
		})
		return
	}
	reply(w, e)
}

func queryUint(r *http.Request, name string, otherwise uint64) (uint64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("?%s=%s: use a whole number", name, s)
	}
	return n, nil
}

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
		date(changes, &list[i])
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
		date(h.stages.Changes, &p)
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

// date sets the time since which a proxy is behind, if the change log has it.
func date(changes Changes, p *server.ProxyState) {
	if changes == nil || p.OldestPending == 0 {
		return
	}
	if c, ok := changes.Change(p.OldestPending); ok {
		p.BehindSince = c.Times.Published
	}
}
