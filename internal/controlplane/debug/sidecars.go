package debug

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/moonsail/moonsail/internal/controlplane/agents"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// InUse is the body of /debug/in-use.
type InUse struct {
	Revision model.Revision `json:"revision"`
	Asked    []agents.Use   `json:"asked"`
}

// Bounds of ?max=, and of the proxies that are chosen from.
const (
	askedProxies  = 3
	maxAsked      = 50
	chosenProxies = 10_000
)

func (h *handler) inUse(w http.ResponseWriter, r *http.Request) {
	if h.stages.Sidecars == nil || h.stages.Explain == nil {
		absent(w, "sidecars")
		return
	}
	key, one, err := parseKey(r.PathValue("key"))
	if err != nil || !one {
		fail(w, http.StatusBadRequest, fmt.Sprintf("%q: not an object", r.PathValue("key")), "use Kind/namespace/name or Namespace/name")
		return
	}
	most, err := queryUint(r, "max", askedProxies)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	e, err := h.stages.Explain.Object(key, explain.Ask{All: true, Max: chosenProxies})
	if err != nil {
		missing(w, key, err.Error(), "")
		return
	}
	aboutAll(w) // the answer names the proxies that were asked
	out := InUse{Revision: e.Revision, Asked: []agents.Use{}}
	if e.State != changelog.Building {
		out.Asked = h.stages.Sidecars.Sample(r.Context(), e.Proxies, e.Revision, int(min(most, maxAsked)))
	}
	reply(w, out)
}

func (h *handler) envoy(w http.ResponseWriter, r *http.Request) {
	if h.stages.Sidecars == nil {
		absent(w, "sidecars")
		return
	}
	page := r.PathValue("page")
	if _, ok := agents.Pages[page]; !ok {
		notFound(w, Failure{Error: fmt.Sprintf("page %q: unknown for Envoys", page), Page: indexPath})
		return
	}
	text, err := h.stages.Sidecars.Get(r.Context(), r.PathValue("id"), page, r.URL.Query())
	var gone explain.NotConnected
	switch {
	case errors.As(err, &gone):
		answer(w, nil, err)
	case isTimeout(err):
		fail(w, http.StatusGatewayTimeout, "agent of the proxy: "+err.Error(), "Envoy may be frozen or overloaded: see its log")
	case err != nil:
		fail(w, http.StatusBadGateway, "agent of the proxy: "+err.Error(), "agents answer requests from their own host or Pod, or with a token: see --agent-token-file of serve and --debug-token-file of agent")
	default:
		w.Header().Set("Content-Type", contentType(page))
		_, _ = w.Write(text)
	}
}

// isTimeout reports whether a request got no answer in time.
func isTimeout(err error) bool {
	var slow interface{ Timeout() bool }
	return errors.As(err, &slow) && slow.Timeout()
}

func contentType(page string) string {
	if page == "stats" || page == "logs" {
		return "text/plain; charset=utf-8"
	}
	return "application/json"
}
