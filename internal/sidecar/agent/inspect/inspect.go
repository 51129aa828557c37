// Package inspect has the debug pages of an agent, which call Envoy's admin interface, and their client.
package inspect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/security/debugauth"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// Paths of the pages. Envoy answers on its main thread, so the agent sends one request at a time.
const (
	PathInUse      = "/debug/envoy/in-use"      // ?cds=NAME&lds=NAME: also about these resources
	PathConfigDump = "/debug/envoy/config_dump" // with the query of Envoy's page
	PathStats      = "/debug/envoy/stats"       // in Prometheus's format
	PathClusters   = "/debug/envoy/clusters"
	PathListeners  = "/debug/envoy/listeners"
	PathServer     = "/debug/envoy/server_info"
	PathLogging    = "/debug/envoy/logging" // levels of Envoy's loggers by name; read-only
	PathIdentity   = "/debug/identity"      // the workload's certificate, without its key
	PathWorkers    = "/debug/workers"       // connections and CPU time of each worker thread
	PathMetrics    = "/stats/envoy"         // ?filter=REGEX: Envoy's metrics with Istio's names, for everyone
	PathLogs       = "/debug/logs"          // the last lines of the agent's log, which includes Envoy's
)

// InUse is the state of the configuration in an Envoy.
type InUse struct {
	Now       time.Time  `json:"now"`   // by the agent's clock
	State     string     `json:"state"` // Envoy's state: LIVE
	Clusters  Counts     `json:"clusters"`
	Listeners Counts     `json:"listeners"`
	Resources []Resource `json:"resources"` // the requested ones
}

// Counts are the numbers of resources in use and of those that wait for others.
type Counts struct {
	Active  uint64 `json:"active"`
	Warming uint64 `json:"warming"`
}

// Resource is one resource in Envoy.
type Resource struct {
	Type  string `json:"type"` // CDS or LDS
	Name  string `json:"name"`
	State string `json:"state"`
	// Version is that of the resource in use, Warming that of a newer one which is not in use yet. On a
	// state-of-the-world stream they are versions of responses.
	Version string `json:"version,omitempty"`
	Warming string `json:"warming,omitempty"`
	Error   string `json:"error,omitempty"` // Envoy's error if it refused the last version
}

// States of a Resource.
const (
	Active  = "active"
	Warming = "warming" // Envoy has it, or a newer version of it, but does not use it yet
	Missing = "missing"
)

// maxAsked bounds the resources of one request, maxName the length of a name.
const (
	maxAsked = 64
	maxName  = 1 << 10
)

// Pages serves the pages to clients that policy allows.
func Pages(admin *envoy.Admin, logs *Tail, policy debugauth.Policy, log *slog.Logger) http.Handler {
	p := &pages{admin: admin}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathInUse, p.inUse)
	mux.HandleFunc("GET "+PathConfigDump, p.json(func(r *http.Request) (json.RawMessage, error) {
		return admin.ConfigDump(r.Context(), r.URL.Query())
	}))
	mux.HandleFunc("GET "+PathClusters, p.json(func(r *http.Request) (json.RawMessage, error) { return admin.Clusters(r.Context()) }))
	mux.HandleFunc("GET "+PathListeners, p.json(func(r *http.Request) (json.RawMessage, error) { return admin.Listeners(r.Context()) }))
	mux.HandleFunc("GET "+PathServer, func(w http.ResponseWriter, r *http.Request) {
		info, err := admin.ServerInfo(r.Context())
		reply(w, info, err)
	})
	mux.HandleFunc("GET "+PathLogging, p.logging)
	mux.HandleFunc("GET "+PathStats, p.stats)
	mux.HandleFunc("GET "+PathLogs, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(logs.Bytes()) })
	return policy.Guard(mux, refuse, log)
}

func refuse(w http.ResponseWriter, status int, what, next string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": what, "next": next}) // fails if the client disconnected
}

type pages struct {
	admin *envoy.Admin
	turn  sync.Mutex // held during a request to Envoy, but not while the client reads the answer
}

// asked calls ask when no other request to Envoy runs.
func asked[T any](p *pages, ask func() (T, error)) (T, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	return ask()
}

func (p *pages) json(get func(*http.Request) (json.RawMessage, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := asked(p, func() (json.RawMessage, error) { return get(r) })
		reply(w, text, err)
	}
}

func (p *pages) stats(w http.ResponseWriter, r *http.Request) {
	var text bytes.Buffer
	_, err := asked(p, func() (struct{}, error) {
		return struct{}{}, p.admin.Prometheus(r.Context(), r.URL.RawQuery, &text)
	})
	if err != nil {
		refuse(w, http.StatusBadGateway, err.Error(), "")
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = w.Write(text.Bytes()) // fails if the client disconnected
}

// logging ignores the query, which would set Envoy's levels: permission to read is not permission to change.
func (p *pages) logging(w http.ResponseWriter, r *http.Request) {
	levels, err := asked(p, func() (map[string]string, error) { return p.admin.Logging(r.Context(), nil) })
	reply(w, levels, err)
}

func (p *pages) inUse(w http.ResponseWriter, r *http.Request) {
	about, err := questions(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "request fewer resources")
		return
	}
	u, err := asked(p, func() (*InUse, error) { return Ask(r.Context(), p.admin, about) })
	reply(w, u, err)
}

func reply(w http.ResponseWriter, value any, err error) {
	if err != nil {
		refuse(w, http.StatusBadGateway, "Envoy does not answer: "+err.Error(), "see the agent's log")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // fails if the client disconnected
}

// Question names a resource: CDS or LDS, and its name.
type Question struct{ Type, Name string }

func questions(q url.Values) ([]Question, error) {
	var out []Question
	for _, t := range []string{"CDS", "LDS"} {
		for _, n := range q[strings.ToLower(t)] {
			if len(out) == maxAsked || len(n) > maxName {
				return nil, fmt.Errorf("more than %d resources, or a name of more than %d bytes", maxAsked, maxName)
			}
			out = append(out, Question{t, n})
		}
	}
	return out, nil
}

// Ask requests the state of the configuration from an Envoy.
func Ask(ctx context.Context, admin *envoy.Admin, asked []Question) (*InUse, error) {
	info, err := admin.ServerInfo(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := admin.Stats(ctx, `^(cluster_manager|listener_manager)\.`)
	if err != nil {
		return nil, err
	}
	u := &InUse{Now: time.Now(), State: info.State, Resources: []Resource{},
		Clusters:  Counts{stats["cluster_manager.active_clusters"], stats["cluster_manager.warming_clusters"]},
		Listeners: Counts{stats["listener_manager.total_listeners_active"], stats["listener_manager.total_listeners_warming"]}}
	for _, k := range kinds {
		if err := k.ask(ctx, admin, asked, u); err != nil {
			return nil, err
		}
	}
	for i := range u.Resources {
		u.Resources[i].State = cmp.Or(u.Resources[i].State, Missing)
	}
	return u, nil
}

// kind describes how one type of resources is found in a config dump.
type kind struct {
	typ       string
	resources []string // of Envoy's config dump
	read      func(*dumped, *Resource)
}

// dumped has the fields of a dumped cluster or listener that are used.
type dumped struct {
	Name    string `json:"name"`
	Version string `json:"version_info"`
	Cluster struct {
		Name string `json:"name"`
	} `json:"cluster"`
	Active *struct {
		Version string `json:"version_info"`
	} `json:"active_state"`
	Warming *struct {
		Version string `json:"version_info"`
	} `json:"warming_state"`
	Error *struct {
		Details string `json:"details"`
	} `json:"error_state"`
}

var kinds = []kind{
	{"CDS", []string{"dynamic_active_clusters"}, func(d *dumped, r *Resource) { r.State, r.Version = cmp.Or(r.State, Active), d.Version }},
	{"CDS", []string{"dynamic_warming_clusters"}, func(d *dumped, r *Resource) { r.State, r.Warming = Warming, d.Version }},
	{"LDS", []string{"dynamic_listeners"}, readListener},
}

func readListener(d *dumped, r *Resource) {
	if d.Active != nil {
		r.State, r.Version = Active, d.Active.Version
	}
	if d.Warming != nil {
		r.State, r.Warming = Warming, d.Warming.Version
	}
	if d.Error != nil {
		r.Error = d.Error.Details
	}
}

// ask adds Envoy's state of the resources of one kind to u.
func (k *kind) ask(ctx context.Context, admin *envoy.Admin, asked []Question, u *InUse) error {
	var names []string
	for _, q := range asked {
		if q.Type == k.typ {
			names = append(names, regexp.QuoteMeta(q.Name))
			u.entry(q)
		}
	}
	if len(names) == 0 {
		return nil
	}
	for _, resource := range k.resources {
		text, err := admin.ConfigDump(ctx, url.Values{"resource": {resource}, "name_regex": {"^(" + strings.Join(names, "|") + ")$"}})
		if err != nil {
			return err
		}
		var d struct {
			Configs []dumped `json:"configs"`
		}
		if err := json.Unmarshal(text, &d); err != nil {
			return errors.New("cannot decode Envoy's config dump: " + err.Error())
		}
		for i := range d.Configs {
			name := cmp.Or(d.Configs[i].Name, d.Configs[i].Cluster.Name)
			if at := u.index(Question{k.typ, name}); at >= 0 {
				k.read(&d.Configs[i], &u.Resources[at])
			}
		}
	}
	return nil
}

func (u *InUse) index(q Question) int {
	return slices.IndexFunc(u.Resources, func(r Resource) bool { return r.Type == q.Type && r.Name == q.Name })
}

func (u *InUse) entry(q Question) {
	if u.index(q) < 0 {
		u.Resources = append(u.Resources, Resource{Type: q.Type, Name: q.Name})
	}
}
