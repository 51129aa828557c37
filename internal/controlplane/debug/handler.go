package debug

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/http/pprof"
	runtimedebug "runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/moonsail/moonsail/internal/controlplane/dashboard"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/version"
)

// page is one path and its content. The index lists all pages.
type page struct {
	path  string // the link; a pattern in braces is not a link
	about string
	serve http.HandlerFunc
}

// Handler serves all pages.
func Handler(stages Stages, log *slog.Logger) http.Handler {
	h := &handler{stages: stages, log: log}
	pages := h.pages()
	mux := http.NewServeMux()
	for _, p := range pages {
		mux.HandleFunc("GET "+p.path, h.oneOfSeveral(p.serve))
	}
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	for _, path := range dashboard.Paths[1:] {
		mux.Handle("GET "+path, dashboard.Handler())
	}
	index := h.index(pages)
	mux.HandleFunc("GET "+indexPath, index)
	mux.HandleFunc("GET /debug/{$}", index)
	mux.Handle("GET /{$}", http.RedirectHandler("/debug", http.StatusFound))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		notFound(w, Failure{Error: fmt.Sprintf("%s %s: no such page", r.Method, r.URL.Path), Page: indexPath})
	})
	return h.recovering(mux)
}

// handler serves the pages of one control plane.
type handler struct {
	stages Stages
	log    *slog.Logger

	// turn is held while an answer decodes everything that a proxy has, so that there is one at a time. It
	// is not held while the answer is sent.
	turn sync.Mutex
}

// oneOfSeveral adds HeaderOthers to answers.
func (h *handler) oneOfSeveral(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if h.stages.Peers != nil {
			if n := len(h.stages.Peers.All()); n > 0 {
				w.Header().Set(HeaderOthers, strconv.Itoa(n))
			}
		}
		serve(w, r)
	}
}

func (h *handler) pages() []page {
	pages := h.ownPages()
	for _, p := range h.stages.More {
		pages = append(pages, page{p.Path, p.About, p.Serve})
	}
	return pages
}

func (h *handler) ownPages() []page {
	return []page{
		{dashboard.Path, "page of changes, proxies and problems, for people", dashboard.Handler().ServeHTTP},
		{readyPath, "200 once the control plane serves what its sources have, else 503 and what it waits for", h.ready},
		{"/version", "the build", h.version},
		{"/metrics", "metrics, for Prometheus", h.metrics},
		{"/debug/changes", "the newest changes with their stages; ?n= number, ?after= only changes after a revision, ?disconnected with the proxies that are disconnected without a change", h.changes},
		{"/debug/changes/{revision}", "one change with its stages, and the proxies of this control plane that do not have it and why; ?all every proxy, ?max= number", h.change},
		{"/debug/proxies", "connected proxies of all control planes, with their state by resource type, and those that have disconnected and may still run; ?local only of this one, ?disconnected only the latter", h.proxies},
		{"/debug/proxies/{id}", "details of one proxy, by node ID or name.namespace, also if it has disconnected; ?local only if it is connected to this control plane", h.proxy},
		{"/debug/proxies/{id}/config/{section}", "what a proxy should have (listeners, routes, clusters, endpoints, secrets, extensions or all), and what it ACKed; ?full with the resources", h.config},
		{"/debug/policies/{id}", "the authorization policies in force at a proxy with their rules in words, and its mutual TLS modes", h.policies},
		{"/debug/proxies/{id}/envoy/{page}", "what a proxy's Envoy has, from its agent: in-use, config_dump, clusters, listeners, stats, server_info, logging, workers, identity or logs", h.envoy},
		{"/debug/in-use/{key...}", "whether Envoys use an object's last change: asks some that ACKed it; ?max= number", h.inUse},
		{"/debug/explain/{key...}", "an object's last change (VirtualService/shop/reviews) with its stages, and the proxies of all control planes that do not have it; ?all every proxy, ?max= number, ?within= time limit for other control planes, ?local only of this one", h.explain},
		{"/debug/stale", "proxies of all control planes with endpoints that are gone, and since when; ?local only of this one", h.stale},
		{"/debug/why/{from}", "what decides a call of a proxy; ?to= URL, ?method=, ?header=name: value, ?principal=", h.why},
		{"/debug/traffic", "calls between workloads with rate, errors, durations and mutual TLS, measured while this page is read; ?local only of this control plane's proxies", h.traffic},
		{"/debug/dependencies", "which services workloads call, as learned by all control planes; ?namespace= and ?workload= of the callers, ?callers-of= a service, ?local only this control plane", h.dependencies},
		{"/debug/search", "proxies, objects and changes whose names have all words of ?q=", h.search},
		{"/debug/problems", "problems of the configuration", h.problems},
		{"/debug/source", "the directory that is the source, or health of the Kubernetes API server: the last answer for each kind, since when requests fail, and the last heartbeat", h.source},
		{"/debug/store", "number of objects of each kind", h.store},
		{"/debug/store/{key...}", "the objects of a kind (Service), also those deleted lately, or one object (Service/shop/reviews)", h.object},
		{"/debug/scopes", "proxy groups: proxies with the same configuration", h.proxyGroups},
		{"/debug/ca", "the certificate authority: its signing certificate and roots, with expiry", h.ca},
		{"/debug/pprof/", "profiles: heap, goroutine, mutex, block, ...", pprof.Index},
		{"/debug/pprof/profile", "CPU profile; ?seconds= duration", pprof.Profile},
		{"/debug/pprof/trace", "execution trace; ?seconds= duration", pprof.Trace},
	}
}

func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	if h.stages.Ready != nil {
		if err := h.stages.Ready(); err != nil {
			fail(w, http.StatusServiceUnavailable, "not ready: "+err.Error(), "")
			return
		}
	}
	reply(w, map[string]bool{"ready": true})
}

// version answers with the build, and with the same in istiod's form, which istioctl reads.
func (h *handler) version(w http.ResponseWriter, _ *http.Request) {
	v := version.Get()
	reply(w, struct {
		version.Info
		Client version.Istio `json:"clientVersion"`
	}{v, v.Istio()})
}

func (h *handler) metrics(w http.ResponseWriter, r *http.Request) {
	if h.stages.Gatherer == nil {
		absent(w, "metrics")
		return
	}
	promhttp.HandlerFor(h.stages.Gatherer, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

func (h *handler) problems(w http.ResponseWriter, _ *http.Request) {
	dump(w, "problems", h.stages.Problems)
}

func (h *handler) proxyGroups(w http.ResponseWriter, _ *http.Request) {
	dump(w, "scopes", h.stages.ProxyGroups)
}

// Directory is the body of /debug/source if the source is a directory.
type Directory struct {
	Directory string `json:"directory"`
}

func (h *handler) source(w http.ResponseWriter, _ *http.Request) {
	if h.stages.Source == nil && h.stages.ConfigDir != "" {
		reply(w, Directory{h.stages.ConfigDir})
		return
	}
	dump(w, "source", h.stages.Source)
}

func (h *handler) ca(w http.ResponseWriter, _ *http.Request) { dump(w, "ca", h.stages.CA) }

func dump(w http.ResponseWriter, what string, get func() any) {
	if get == nil {
		absent(w, what)
		return
	}
	reply(w, map[string]any{what: get()})
}

var indexPage = template.Must(template.New("index").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Moonsail</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}td{padding:.2rem 1rem .2rem 0;vertical-align:top}</style>
</head><body><h1>Moonsail</h1><p>{{.Build}}</p><table>
{{range .Pages}}<tr><td>{{if .Link}}<a href="{{.Path}}">{{.Path}}</a>{{else}}{{.Path}}{{end}}</td><td>{{.About}}</td></tr>
{{end}}</table></body></html>
`))

func (h *handler) index(pages []page) http.HandlerFunc {
	type row struct {
		Path  string `json:"path"`
		About string `json:"about"`
		Link  bool   `json:"link"` // the path has no braces
	}
	var rows []row
	for _, p := range pages {
		rows = append(rows, row{p.path, p.about, p.path[len(p.path)-1] != '}'})
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "application/json") { // a program, such as the dashboard
			reply(w, map[string][]row{"pages": rows})
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := indexPage.Execute(w, map[string]any{"Build": version.Get().String(), "Pages": rows}); err != nil {
			h.log.Debug("writing the index page", "err", err)
		}
	}
}

// recovering turns a panic of a page into a 500 and a log line. The control plane continues.
func (h *handler) recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				h.log.Error("debug page failed", "path", r.URL.Path, "panic", p, "stack", string(runtimedebug.Stack()))
				fail(w, http.StatusInternalServerError, fmt.Sprintf("page failed: %v", p), "please report it with the stack in the control plane's log")
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// Failure is the body of every answer that is not 200.
type Failure struct {
	Error string `json:"error"`
	Next  string `json:"next,omitempty"` // advice for people, with commands
	Page  string `json:"page,omitempty"` // path of a page that lists what exists
	// Missing is the object that the request names and the control plane does not have.
	Missing string `json:"missing,omitempty"`
}

func fail(w http.ResponseWriter, status int, what, next string) {
	write(w, status, Failure{Error: what, Next: next})
}

func notFound(w http.ResponseWriter, f Failure) { write(w, http.StatusNotFound, f) }

// missing answers that an object does not exist.
func missing(w http.ResponseWriter, key model.Key, what, advice string) {
	notFound(w, Failure{Error: what, Next: advice, Page: "/debug/store/" + string(key.Kind), Missing: key.String()})
}

// disconnected answers that a proxy is not connected. advice is empty if no other control plane may have it.
func disconnected(w http.ResponseWriter, what, advice string) {
	notFound(w, Failure{Error: what, Next: cmp.Or(advice, "see 'moonsail proxies' for connected proxies"), Page: "/debug/proxies"})
}

func absent(w http.ResponseWriter, what string) {
	notFound(w, Failure{Error: what + ": not part of this process", Page: indexPath})
}

func reply(w http.ResponseWriter, value any) { write(w, http.StatusOK, value) }

// write encodes before it writes, so that a failure is a 500 and not half an answer.
func write(w http.ResponseWriter, status int, value any) {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		status = http.StatusInternalServerError
		b, _ = json.Marshal(Failure{Error: "cannot be encoded as JSON: " + err.Error()})
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the reader may be gone
}
