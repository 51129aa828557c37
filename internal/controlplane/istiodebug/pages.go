package istiodebug

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Source is what the pages read. Functions may be called at any time, by many goroutines.
type Source struct {
	// Proxies returns the connected proxies of this control plane.
	Proxies func() []server.ProxyState
	// Resources answers what a proxy should have.
	Resources distribution.Proxies
	Snapshot  func() *store.Snapshot
	// Objects returns the users' objects of the kinds of IsConfig, and may return others, as JSON of the API server.
	Objects func(context.Context) ([]json.RawMessage, error)
	// ConfigMaps returns the ConfigMap named MeshConfig if there is one, and may return other objects.
	ConfigMaps func(context.Context) ([]json.RawMessage, error)
	// MeshConfig is the name of the ConfigMap with the mesh's configuration.
	MeshConfig string
	// Instance names this control plane: its Pod.
	Instance string
	Revision string
}

// Pages are istiod's debug pages. A control plane has one, by HTTP and by xDS.
type Pages struct {
	Source

	// turn is held while an answer is made, so that there is one large answer at a time. It is not held while the answer is
	// sent.
	turn sync.Mutex
}

// Page is one page.
type Page struct {
	Name  string // "syncz" of /debug/syncz
	About string
	Serve http.HandlerFunc
}

// All lists the pages. Each answer is made in turn.
func (p *Pages) All() []Page {
	all := p.pages()
	for i := range all {
		serve := all[i].Serve
		all[i].Serve = func(w http.ResponseWriter, r *http.Request) { p.record(serve, r).send(w) }
	}
	return all
}

// record makes an answer in turn.
func (p *Pages) record(serve http.HandlerFunc, r *http.Request) *recorder {
	a := &recorder{header: http.Header{}, status: http.StatusOK}
	p.turn.Lock()
	defer p.turn.Unlock()
	serve(a, r)
	return a
}

// recorder keeps an answer.
type recorder struct {
	bytes.Buffer
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (a *recorder) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *recorder) WriteHeader(status int) { a.status = status }

func (a *recorder) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.Bytes()) // the reader may be gone
}

func (p *Pages) pages() []Page {
	return []Page{
		{"syncz", "as istiod: what was sent to each connected proxy, and what it ACKed; ?namespace= of proxies", p.syncz},
		{"adsz", "as istiod: connected proxies, with the names that they subscribe to by type", p.connections},
		{"connections", "as istiod: connected proxies", p.connections},
		{"config_dump", "as istiod: what a proxy should have, in the form of Envoy's config dump; ?proxyID= name.namespace", p.configDump},
		{"edsz", "as istiod: endpoints of a proxy; ?proxyID=", p.configDump},
		{"ecdsz", "as istiod: extensions of a proxy; ?proxyID=", p.configDump},
		{"ndsz", "as istiod: the names that a proxy's DNS server answers; ?proxyID=", p.ndsz},
		{"registryz", "as istiod: all services", p.registryz},
		{"endpointz", "as istiod: endpoints of all services", p.endpointShardz},
		{"endpointShardz", "as istiod: endpoints of all services", p.endpointShardz},
		{"instancesz", "as istiod: the services that each proxy serves", p.instancesz},
		{"configz", "as istiod: objects of Istio's and the Gateway API's kinds", p.configz},
		{"resourcesz", "as istiod: kinds that the control plane reads", p.resourcesz},
		{"mesh", "as istiod: the mesh configuration", p.mesh},
		{"clusterz", "as istiod: clusters that the control plane reads", p.clusterz},
		{"list", "as istiod: names of these pages", p.list},
	}
}

// handler makes the answer of a page by name, for questions by xDS.
func (p *Pages) handler(name string) http.HandlerFunc {
	all := p.pages()
	i := slices.IndexFunc(all, func(one Page) bool { return one.Name == name })
	if i < 0 {
		// istioctl looks for this text.
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) }
	}
	return all[i].Serve
}

func (p *Pages) list(w http.ResponseWriter, _ *http.Request) {
	var names []string
	for _, one := range p.pages() {
		names = append(names, one.Name)
	}
	reply(w, names)
}

// reply writes JSON, as istiod.
func reply(w http.ResponseWriter, value any) {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		http.Error(w, fmt.Sprintf("the answer cannot be encoded: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(b, '\n')) // the reader may be gone
}
