package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/moonsail/moonsail/internal/controlplane/dashboard"
)

// object is a JSON object.
type object = map[string]any

// now is the clock of the control plane.
const now = "2026-01-02T03:04:05Z"

// plane is a control plane whose debug pages have fixed answers.
type plane struct {
	URL     string
	traffic atomic.Pointer[object] // of /debug/traffic
	token   string                 // that requests need; "": none
	refused atomic.Int64           // requests without it
	others  atomic.Int64           // control planes beside it

	mu      sync.Mutex           // guards the fields below
	held    map[string]chan bool // by path: requests wait for it to close
	waiting map[string]int       // by path: requests that waited
	asked   map[string]int       // by path: answers
	failing map[string]bool      // by path: answers are errors
	changed map[string]any       // by path: answers, instead of the fixed ones
}

// hold makes requests of a path wait until release, or until the page drops them.
func (p *plane) hold(path string) (release func()) {
	done := make(chan bool)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[path] = done
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.held, path)
		close(done)
	}
}

// count returns the number of requests of a path that were answered, and that had to wait.
func (p *plane) count(path string) (asked, waited int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path], p.waiting[path]
}

func (p *plane) fail(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing[path] = true
}

// change replaces the answer of a path.
func (p *plane) change(path string, answer any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed[path] = answer
}

// admit waits while a path is held, and counts the request. It reports whether the answer is an error.
func (p *plane) admit(r *http.Request) (fails bool) {
	path := r.URL.Path
	p.mu.Lock()
	done := p.held[path]
	if done != nil {
		p.waiting[path]++
	}
	p.mu.Unlock()
	if done != nil {
		select {
		case <-done:
		case <-r.Context().Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[path]++
	return p.failing[path]
}

// startPlane serves the dashboard, with a name in each place where a mesh has names.
func startPlane(t *testing.T, name string) *plane {
	t.Helper()
	p := &plane{held: map[string]chan bool{}, waiting: map[string]int{}, asked: map[string]int{}, failing: map[string]bool{}, changed: map[string]any{}}
	mux := http.NewServeMux()
	for _, path := range dashboard.Paths {
		mux.Handle("GET "+path, dashboard.Handler())
	}
	for path, answer := range answers(name) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			p.reply(w, r, func() any {
				p.mu.Lock()
				defer p.mu.Unlock()
				if changed := p.changed[r.URL.Path]; changed != nil {
					return changed
				}
				return answer
			})
		})
	}
	mux.HandleFunc("GET /debug/traffic", func(w http.ResponseWriter, r *http.Request) { p.reply(w, r, func() any { return *p.traffic.Load() }) })
	mux.HandleFunc("GET /debug", func(w http.ResponseWriter, r *http.Request) {
		p.reply(w, r, func() any {
			return object{"pages": []object{{"path": "/debug/changes", "about": "the newest changes", "link": true}, {"path": "/debug/store/{key...}", "about": "objects"}, {"path": "/dashboard", "about": "this", "link": true}}}
		})
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		p.reply(w, r, func() any { return "moonsail_proxies <b>1</b>" })
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(object{"error": r.URL.Path + ": not there"})
	})
	g := mesh(5, "shop")
	p.traffic.Store(&g)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	p.URL = s.URL
	return p
}

func (p *plane) reply(w http.ResponseWriter, r *http.Request, answer func() any) {
	if p.token != "" && r.Header.Get("Authorization") != "Bearer "+p.token {
		p.refused.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if p.admit(r) {
		w.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(w).Encode(object{"error": "broken"})
		return
	}
	if n := p.others.Load(); n > 0 {
		w.Header().Set("Moonsail-Other-Control-Planes", fmt.Sprint(n))
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	_ = json.NewEncoder(w).Encode(answer())
}

func aChange(revision int, of object) object {
	return object{
		"revision": revision, "state": "distributing", "objects": []object{of}, "objectCount": 1, "observed": now, "resources": 3, "bytes": 1234,
		"stages":  object{"storeMs": 1, "deriveMs": 2, "translateMs": 3, "sendMs": 0.5, "ackMs": 9, "totalMs": 15.5},
		"proxies": object{"concerned": 2, "acked": 1, "nacked": 1, "gone": 0},
	}
}

// aProxy is one that has refused a listener.
func aProxy(name string) object {
	return object{
		"id": "sidecar~10.0.0.1~" + name, "name": name, "namespace": name, "peer": "10.0.0.1:5", "connected": now, "protocol": "delta", "strategy": "vhds",
		"version": "1.40.0", "settled": 6, "owed": 1, "oldestPending": 7, "behindSince": now,
		"types": []object{{"type": "LDS", "sent": 7, "acked": 6, "waiting": name, "held": []object{{"name": name, "message": name}}}},
	}
}

// answers are those of the debug pages, by path.
func answers(name string) map[string]any {
	key := object{"kind": "VirtualService", "namespace": name, "name": name, "operation": "updated"}
	change, proxy := aChange(7, key), aProxy(name)
	late := object{"name": name, "namespace": name, "position": "refused", "reasons": []object{{"cause": "refused", "type": "LDS", "names": []string{name}, "text": name}}}
	counts := object{"acked": 1, "refused": 1, "behind": 0, "superseded": 0, "disconnected": 0, "notConcerned": 0}
	return map[string]any{
		"/version":                  object{"version": name},
		"/debug/changes":            object{"now": now, "newest": 7, "changes": []object{change}},
		"/debug/changes/{revision}": object{"now": now, "change": change, "counts": counts, "proxies": []object{late}},
		"/debug/proxies":            object{"now": now, "proxies": []object{proxy}},
		"/debug/proxies/{id}":       object{"now": now, "proxy": proxy},
		"/debug/stale":              object{"now": now, "holders": []object{{"name": name, "namespace": name, "address": name, "cluster": name, "since": now}}},
		"/debug/problems": object{"problems": object{
			"config":      []object{{"severity": "error", "object": key, "field": name, "message": name, "file": name}},
			"translation": []object{{"group": name, "name": name, "error": name}},
		}},
		"/debug/explain/{key...}": object{
			"now": now, "exists": true, "origin": name, "problems": []string{name}, "revision": 7, "state": "distributed", "change": change,
			"counts": counts, "proxies": []object{late},
		},
		"/debug/search": object{
			"now": now, "proxies": []object{proxy}, "changes": []object{change}, "leftOut": true,
			"objects": []object{{"kind": "Service", "namespace": name, "name": name}, key},
		},
	}
}

// mesh is a graph of n services in a namespace. The second one fails, and the third gets plain text.
func mesh(n int, namespace string) object {
	end := func(i int) object {
		service := fmt.Sprintf("service-%d", i)
		return object{"namespace": namespace, "workload": service + "-v1", "service": service, "version": "v1"}
	}
	var edges []object
	for i := 1; i < n; i++ {
		for _, from := range []int{(i - 1) / 3, (7 * i) % n} {
			errors, mutual := 0.0, 10.0
			if i == 1 {
				errors = 5
			}
			if i == 2 {
				mutual = 4
			}
			edges = append(edges, object{
				"source": end(from), "destination": end(i), "target": object{"namespace": namespace, "name": fmt.Sprintf("service-%d", i)}, "protocol": "http",
				"client": object{"requests": 10, "errors": errors, "total": 100, "durations": []object{{"fromMs": 0, "toMs": 5, "rate": 10}}},
				"server": object{"requests": 10, "errors": errors, "mutual": mutual, "total": 100},
			})
		}
	}
	return graph(edges)
}

func graph(edges []object) object {
	return object{"now": now, "at": now, "source": "proxies", "everySeconds": 5, "rated": true, "proxies": object{"connected": 9, "measured": 9, "failed": 0}, "edges": edges}
}

// hostileMesh has the same name in each place of a graph.
func hostileMesh(name string) object {
	end := object{"namespace": name, "workload": name, "service": name, "version": name}
	g := graph([]object{{
		"source": end, "destination": object{"namespace": "x", "workload": name + "2", "service": name + "2"}, "target": object{"namespace": "x", "name": name + "2"},
		"protocol": name, "client": object{"requests": 10, "errors": 1},
	}})
	g["failures"] = []string{name}
	return g
}

// hostile are names that are harmful as markup, in an attribute or as a link.
var hostile = []string{
	`<img src=x onerror="window.hacked=1">`,
	`"><script>window.hacked=1</script><svg onload=window.hacked=1>`,
	`javascript:window.hacked=1`,
	`' autofocus onfocus='window.hacked=1`,
	"../../" + strings.Repeat("x", 300) + "%0d%0a#/mesh?node=",
}
