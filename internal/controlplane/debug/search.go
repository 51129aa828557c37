package debug

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// maxFound bounds each list of an answer, and maxQuery the length of a question.
const (
	maxFound = 50
	maxQuery = 256
)

// Found is the body of /debug/search.
type Found struct {
	Now     time.Time           `json:"now"`
	Proxies []server.ProxyState `json:"proxies"`
	Objects []StoredObject      `json:"objects"` // Services first
	Changes []changelog.Change  `json:"changes"` // newest first
	// Others has the meaning of ProxyList.Others.
	Others []explain.PeerQuery `json:"controlPlanes,omitempty"`
	// LeftOut is set if a list is not complete.
	LeftOut bool `json:"leftOut,omitempty"`
}

// search finds what has all words of a question in its name.
func (h *handler) search(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("q")
	words := strings.Fields(strings.ToLower(text))
	if len(text) > maxQuery {
		fail(w, http.StatusBadRequest, "?q=: too long: use a few words", "")
		return
	}
	f := &Found{Now: time.Now(), Proxies: []server.ProxyState{}, Objects: []StoredObject{}, Changes: []changelog.Change{}}
	if len(words) == 0 {
		reply(w, f)
		return
	}
	if h.stages.Proxies != nil {
		list := h.proxyList(w, r)
		f.Others = list.Others
		for _, p := range list.Proxies {
			if matches(words, p.ID+" "+p.Name+"."+p.Namespace) && f.room(len(f.Proxies)) {
				f.Proxies = append(f.Proxies, p)
			}
		}
	}
	if h.stages.Snapshot != nil {
		f.findObjects(h, words)
	}
	if h.stages.Changes != nil {
		for c := range h.stages.Changes.Changes() {
			if changeMatches(words, &c) && f.room(len(f.Changes)) {
				f.Changes = append(f.Changes, c)
			}
		}
	}
	reply(w, f)
}

// room reports whether a list has room, and notes if it does not.
func (f *Found) room(n int) bool {
	f.LeftOut = f.LeftOut || n >= maxFound
	return n < maxFound
}

// findObjects searches the newest snapshot.
func (f *Found) findObjects(h *handler, words []string) {
	snap := h.stages.Snapshot()
	kinds := slices.DeleteFunc(slices.Clone(model.Kinds), func(k model.Kind) bool { return k == model.KindService })
	for _, kind := range append([]model.Kind{model.KindService}, kinds...) {
		for o := range snap.All(kind) {
			m := o.Metadata()
			if !matches(words, m.Key.String()+" "+m.Name+"."+m.Namespace) {
				continue
			}
			if !f.room(len(f.Objects)) {
				return
			}
			f.Objects = append(f.Objects, StoredObject{m.Key, m.ResourceVersion, m.Origin})
		}
	}
}

func changeMatches(words []string, c *changelog.Change) bool {
	var names strings.Builder
	names.WriteString(strconv.FormatUint(uint64(c.Revision), 10))
	for i := range c.Objects {
		names.WriteString(" " + c.Objects[i].Key.String())
	}
	return matches(words, names.String())
}

// matches reports whether a text has all words, which are in lower case.
func matches(words []string, text string) bool {
	text = strings.ToLower(text)
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
