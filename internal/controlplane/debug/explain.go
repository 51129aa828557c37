package debug

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
)

// defaultProxies is the default of ?max=.
const defaultProxies = 100

func (h *handler) explain(w http.ResponseWriter, r *http.Request) {
	if h.stages.Explain == nil {
		absent(w, "changes")
		return
	}
	key, one, err := parseKey(r.PathValue("key"))
	if err != nil || !one {
		fail(w, http.StatusBadRequest, fmt.Sprintf("%q: not an object", r.PathValue("key")),
			"use Kind/namespace/name or Namespace/name")
		return
	}
	most, err := queryUint(r, "max", defaultProxies)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	timeout, err := within(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	ask := explain.Ask{All: r.URL.Query().Has("all"), Max: int(min(most, maxProxies)), Apart: h.everywhere(r)}
	e, err := h.stages.Explain.Object(key, ask)
	if err != nil {
		missing(w, key, err.Error(), "run '"+h.analyze()+"' to find why an object is not used")
		return
	}
	if ask.Apart {
		aboutAll(w)
		h.joinExplanation(r.Context(), timeout, e, ask)
	}
	reply(w, e)
}

// analyze returns the command that checks the source.
func (h *handler) analyze() string {
	return strings.TrimSpace("moonsail analyze " + h.stages.ConfigDir)
}

// maxProxies bounds ?max=.
const maxProxies = 1 << 20

func (h *handler) config(w http.ResponseWriter, r *http.Request) {
	if h.stages.Explain == nil {
		absent(w, "proxies")
		return
	}
	c, err := inTurn(h, func() (*explain.ProxyConfig, error) {
		return h.stages.Explain.Config(r.PathValue("id"), r.PathValue("section"), r.URL.Query().Has("full"))
	})
	answer(w, c, err)
}

func (h *handler) policies(w http.ResponseWriter, r *http.Request) {
	if h.stages.Explain == nil {
		absent(w, "proxies")
		return
	}
	p, err := h.stages.Explain.Policies(r.PathValue("id"))
	answer(w, p, err)
}

func (h *handler) why(w http.ResponseWriter, r *http.Request) {
	if h.stages.Explain == nil {
		absent(w, "proxies")
		return
	}
	q := r.URL.Query()
	call := explain.Call{From: r.PathValue("from"), To: q.Get("to"), Method: q.Get("method"), Principal: q.Get("principal"), Headers: map[string]string{}}
	for _, h := range q["header"] {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			fail(w, http.StatusBadRequest, fmt.Sprintf("?header=%s: use name: value", h), "")
			return
		}
		name = strings.ToLower(strings.TrimSpace(name))
		if _, twice := call.Headers[name]; twice {
			fail(w, http.StatusBadRequest, fmt.Sprintf("header %q: given twice", name), "ask about each value alone: a rule matches if one of the values does")
			return
		}
		call.Headers[name] = strings.TrimSpace(value)
	}
	if h.stages.Peers != nil {
		call.Elsewhere = func(ids []string) map[string]bool { return h.returned(r.Context(), askTimeout, ids) }
	}
	why, err := inTurn(h, func() (*explain.Why, error) { return h.stages.Explain.Why(call) })
	answer(w, why, err)
}

// inTurn serializes answers that decode everything that a proxy has.
func inTurn[T any](h *handler, f func() (T, error)) (T, error) {
	h.turn.Lock()
	defer h.turn.Unlock()
	return f()
}

func (h *handler) stale(w http.ResponseWriter, r *http.Request) {
	if h.stages.Explain == nil {
		absent(w, "proxies")
		return
	}
	s := h.ownStale()
	if h.everywhere(r) {
		aboutAll(w)
		h.joinStale(r.Context(), s)
	}
	reply(w, s)
}

func (h *handler) ownStale() *explain.Stale {
	h.turn.Lock()
	defer h.turn.Unlock()
	return h.stages.Explain.Stale()
}

// answer replies with a value or an error.
func answer(w http.ResponseWriter, value any, err error) {
	var gone explain.NotConnected
	var undecided explain.UndecidedError
	switch {
	case errors.As(err, &gone):
		disconnected(w, err.Error(), "")
	case errors.As(err, &undecided):
		fail(w, http.StatusNotImplemented, err.Error(), "make the call, and read what the proxy has with 'moonsail proxy-config all "+model.CommandWord(undecided.Proxy, "PROXY")+"'")
	case err != nil:
		fail(w, http.StatusBadRequest, err.Error(), "")
	default:
		reply(w, value)
	}
}
