package debug

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/telemetry"
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
	Now     time.Time `json:"now"`
	Proxies []Proxy   `json:"proxies"`
}

// ProxyDetail is the body of /debug/proxies/{id}.
type ProxyDetail struct {
	Now   time.Time `json:"now"`
	Proxy Proxy     `json:"proxy"`
	// Detail is what else the xDS server knows: its tables and subscriptions.
	Detail any `json:"detail,omitempty"`
}

func (h *handler) proxies(w http.ResponseWriter, _ *http.Request) {
	if h.stages.Proxies == nil {
		absent(w, "proxies")
		return
	}
	list := h.stages.Proxies.Proxies()
	if list == nil {
		list = []Proxy{}
	}
	reply(w, ProxyList{time.Now(), list})
}

func (h *handler) proxy(w http.ResponseWriter, r *http.Request) {
	if h.stages.Proxies == nil {
		absent(w, "proxies")
		return
	}
	id := r.PathValue("id")
	list := h.stages.Proxies.Proxies()
	i := slices.IndexFunc(list, func(p Proxy) bool { return p.ID == id || p.Name+"."+p.Namespace == id || p.Name == id })
	if i < 0 {
		fail(w, http.StatusNotFound, fmt.Sprintf("proxy %q is not connected", id), "GET /debug/proxies lists those that are")
		return
	}
	detail, _ := h.stages.Proxies.Detail(list[i].ID) // it may have gone in between
	reply(w, ProxyDetail{time.Now(), list[i], detail})
}
