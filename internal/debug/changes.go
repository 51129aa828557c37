package debug

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/telemetry"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// ChangeList is the body of /debug/changes.
type ChangeList struct {
	Now     time.Time          `json:"now"` // by the control plane's clock
	Newest  model.Revision     `json:"newest"`
	Changes []telemetry.Change `json:"changes"` // newest first
}

// defaultChanges is ?n= where it is not said.
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
	list := ChangeList{Now: time.Now(), Newest: h.stages.Changes.Newest(), Changes: []telemetry.Change{}}
	for c := range h.stages.Changes.Changes() {
		if uint64(len(list.Changes)) >= n || c.Revision <= model.Revision(after) {
			break
		}
		list.Changes = append(list.Changes, c)
	}
	reply(w, list)
}

func queryUint(r *http.Request, name string, otherwise uint64) (uint64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("?%s=%s: a whole number is wanted", name, s)
	}
	return n, nil
}

// ProxyList is the body of /debug/proxies.
type ProxyList struct {
	Now     time.Time           `json:"now"`
	Proxies []server.ProxyState `json:"proxies"`
}

// ProxyDetail is the body of /debug/proxies/{id}.
type ProxyDetail struct {
	Now   time.Time         `json:"now"`
	Proxy server.ProxyState `json:"proxy"`
	Node  *model.Proxy      `json:"node,omitempty"` // what the proxy says of itself
}

func (h *handler) proxies(w http.ResponseWriter, _ *http.Request) {
	if h.stages.Proxies == nil {
		absent(w, "proxies")
		return
	}
	list := h.stages.Proxies.Proxies()
	if list == nil {
		list = []server.ProxyState{}
	}
	for i := range list {
		h.date(&list[i])
	}
	reply(w, ProxyList{time.Now(), list})
}

func (h *handler) proxy(w http.ResponseWriter, r *http.Request) {
	if h.stages.Proxies == nil {
		absent(w, "proxies")
		return
	}
	id := r.PathValue("id")
	p, ok := h.stages.Proxies.Proxy(id)
	if !ok {
		fail(w, http.StatusNotFound, fmt.Sprintf("proxy %q is not connected", id), "GET /debug/proxies lists those that are")
		return
	}
	h.date(&p)
	reply(w, ProxyDetail{time.Now(), p, p.Proxy})
}

// date says since when a proxy is behind, where that is remembered.
func (h *handler) date(p *server.ProxyState) {
	if h.stages.Changes == nil || p.OldestOwed == 0 {
		return
	}
	if c, ok := h.stages.Changes.Change(p.OldestOwed); ok {
		p.BehindSince = c.Times.Published
	}
}
