package debug

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// StoreSummary is the body of /debug/store.
type StoreSummary struct {
	Revision model.Revision     `json:"revision"`
	Objects  map[model.Kind]int `json:"objects"`
}

// StoredObject is an object in the list of a kind.
type StoredObject struct {
	model.Key
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Origin          string `json:"origin,omitempty"`
}

// StoredObjects is the body of the list of a kind.
type StoredObjects struct {
	Revision model.Revision `json:"revision"`
	Objects  []StoredObject `json:"objects"`
	Deleted  []model.Key    `json:"deleted,omitempty"` // lately, as far as the change log has them
}

func (h *handler) store(w http.ResponseWriter, _ *http.Request) {
	if h.stages.Snapshot == nil {
		absent(w, "store")
		return
	}
	snap := h.stages.Snapshot()
	s := StoreSummary{Revision: snap.Revision, Objects: map[model.Kind]int{}}
	for _, k := range model.Kinds {
		s.Objects[k] = snap.Len(k)
	}
	reply(w, s)
}

func (h *handler) object(w http.ResponseWriter, r *http.Request) {
	if h.stages.Snapshot == nil {
		absent(w, "store")
		return
	}
	key, one, err := parseKey(r.PathValue("key"))
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error(), "use Kind, Kind/namespace/name or Namespace/name")
		return
	}
	snap := h.stages.Snapshot()
	if !one {
		list := StoredObjects{Revision: snap.Revision, Objects: []StoredObject{}}
		for o := range snap.All(key.Kind) {
			m := o.Metadata()
			list.Objects = append(list.Objects, StoredObject{m.Key, m.ResourceVersion, m.Origin})
		}
		if h.stages.Changes != nil {
			list.Deleted = h.stages.Changes.Deleted(key.Kind)
		}
		reply(w, list)
		return
	}
	o := snap.Get(key)
	if o == nil {
		missing(w, key, fmt.Sprintf("%s: not found", key), "")
		return
	}
	reply(w, o)
}

// parseKey reads "Kind" (one is false), "Kind/name" or "Kind/namespace/name". The case of kinds does not
// matter.
func parseKey(s string) (key model.Key, one bool, err error) {
	parts := strings.Split(strings.Trim(s, "/"), "/")
	i := slices.IndexFunc(model.Kinds, func(k model.Kind) bool { return strings.EqualFold(string(k), parts[0]) })
	if i < 0 {
		return key, false, fmt.Errorf("kind %q: unknown: use %s", parts[0], kindList())
	}
	key.Kind = model.Kinds[i]
	switch len(parts) {
	case 1:
		return key, false, nil
	case 2:
		key.Name = parts[1]
	case 3:
		key.Namespace, key.Name = parts[1], parts[2]
	default:
		return key, false, fmt.Errorf("%q: too many parts", s)
	}
	return key, true, nil
}

func kindList() string {
	names := make([]string, len(model.Kinds))
	for i, k := range model.Kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}
