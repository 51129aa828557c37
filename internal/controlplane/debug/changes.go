package debug

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// ChangeList is the body of /debug/changes.
type ChangeList struct {
	Now     time.Time          `json:"now"` // by the control plane's clock
	Newest  model.Revision     `json:"newest"`
	Changes []changelog.Change `json:"changes"` // newest first
	// Disconnected are the names of proxies that are disconnected without a change, for the newest changes of an answer with
	// ?disconnected.
	Disconnected map[model.Revision][]string `json:"disconnected,omitempty"`
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
	if r.URL.Query().Has("disconnected") && h.stages.Explain != nil {
		list.Disconnected = h.disconnectedWithout(r.Context(), list.Changes[:min(len(list.Changes), defaultChanges)])
	}
	reply(w, list)
}

// disconnectedWithout returns the names of proxies that lack changes, by revision, and are connected to no control plane.
func (h *handler) disconnectedWithout(ctx context.Context, changes []changelog.Change) map[model.Revision][]string {
	x := h.stages.Explain
	away := x.Disconnected()
	if len(away) == 0 {
		return nil
	}
	oldest := away[0].Settled // every proxy has changes up to it
	var ids []string
	for i := range away {
		oldest, ids = min(oldest, away[i].Settled), append(ids, away[i].ID)
	}
	back := h.backElsewhere(ctx, ids)
	out := map[model.Revision][]string{}
	for i := range changes {
		c := &changes[i]
		if c.Revision <= oldest || c.State == changelog.Building {
			continue
		}
		for id, name := range x.DisconnectedWithout(c.Revision) {
			if !back[id] {
				out[c.Revision] = append(out[c.Revision], name)
			}
		}
		slices.Sort(out[c.Revision])
	}
	return out
}

// backElsewhere returns those of the proxies that are connected to any control plane.
func (h *handler) backElsewhere(ctx context.Context, ids []string) map[string]bool {
	if h.stages.Peers == nil {
		return nil
	}
	return h.returned(ctx, askTimeout, ids)
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
