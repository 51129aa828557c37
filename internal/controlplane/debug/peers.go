package debug

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Pages about proxies combine the answers of all control planes. Each answers for its own proxies. A
// question of a peer is never passed on.

// Unary gRPC methods between control planes, with messages in JSON.
const (
	// MethodExplain returns the status of an object: from an explainQuestion to an explain.Explanation.
	MethodExplain = "/moonsail.v1.ControlPlane/Explain"
	// MethodProxies returns the connected proxies, and those that have disconnected: from a proxiesQuestion to a ProxyList.
	MethodProxies = "/moonsail.v1.ControlPlane/Proxies"
	// MethodProxy returns one of them: from a proxyQuestion to a proxyAnswer.
	MethodProxy = "/moonsail.v1.ControlPlane/Proxy"
	// MethodStale returns proxies with endpoints that are gone: an explain.Stale.
	MethodStale = "/moonsail.v1.ControlPlane/Stale"
	// MethodConnected returns which of some proxies are connected: from nodeIDs to nodeIDs.
	MethodConnected = "/moonsail.v1.ControlPlane/Connected"
	// MethodTraffic returns the calls of the connected proxies: a traffic.Graph.
	MethodTraffic = "/moonsail.v1.ControlPlane/Traffic"
	// MethodDependencies returns learned dependencies: from a dependencies.Question to a dependencies.Report.
	MethodDependencies = "/moonsail.v1.ControlPlane/Dependencies"
)

type explainQuestion struct {
	Object model.Key `json:"object"`
	All    bool      `json:"all,omitempty"`
	Max    int       `json:"max"`
}

type proxiesQuestion struct {
	Disconnected bool `json:"disconnected,omitempty"` // only proxies that have disconnected
}

type proxyQuestion struct {
	Proxy string `json:"proxy"` // node ID or name.namespace
}

type proxyAnswer struct {
	Detail *ProxyDetail `json:"detail,omitempty"` // nil: it is not connected here
}

type nodeIDs struct {
	IDs []string `json:"ids"`
}

// maxTold bounds each list of an answer to a peer, in bytes. An answer has at most two lists, and a peer
// accepts 16 MB.
const maxTold = 6 << 20

// fitting returns the beginning of a list that fits, and how many elements do not.
func fitting[T any](list []T, most int) (fits []T, leftOut int) {
	size := 0
	for i := range list {
		b, err := json.Marshal(&list[i])
		if size += len(b) + 1; err != nil || size > most {
			return list[:i], len(list) - i
		}
	}
	return list, 0
}

// PeerQueries answers other control planes about the proxies of this one. The port that serves its methods
// admits control planes only. Its exported fields are read-only.
type PeerQueries struct {
	Explain *explain.Explainer
	Proxies Proxies
	Changes Changes
	Traffic Traffic
	// Dependencies are nil if they are not learned.
	Dependencies Dependencies

	turn sync.Mutex // held by an answer that reads everything that proxies have: one at a time
}

// Methods are the methods for peers.
func (pq *PeerQueries) Methods() map[string]server.Unary {
	return map[string]server.Unary{
		MethodExplain:      answering(MethodExplain, pq.explain),
		MethodProxies:      answering(MethodProxies, func(q *proxiesQuestion) any { return pq.proxies(*q) }),
		MethodProxy:        answering(MethodProxy, pq.proxy),
		MethodTraffic:      answering(MethodTraffic, func(*struct{}) any { return pq.traffic() }),
		MethodDependencies: answering(MethodDependencies, func(q *dependencies.Question) any { return pq.dependencies(*q) }),
		MethodStale:        answering(MethodStale, func(*struct{}) any { return pq.stale() }),
		MethodConnected:    answering(MethodConnected, func(q *nodeIDs) any { return nodeIDs{pq.Explain.Proxies.Connected(q.IDs)} }),
	}
}

// answering returns a method that decodes its question.
func answering[T any](name string, answer func(*T) any) server.Unary {
	return func(_ context.Context, request []byte) ([]byte, error) {
		q := new(T)
		if err := json.Unmarshal(request, q); err != nil {
			return nil, server.Invalid("%s: %v", name, err)
		}
		return json.Marshal(answer(q))
	}
}

func (pq *PeerQueries) explain(q *explainQuestion) any {
	e, err := pq.Explain.Object(q.Object, explain.Ask{All: q.All, Max: max(0, min(q.Max, maxProxies)), Apart: true})
	if err != nil { // the object is absent, which a control plane that deleted it wants to know
		return &explain.Explanation{Now: time.Now(), Object: q.Object, State: changelog.Distributed}
	}
	var proxies, away int
	e.Proxies, proxies = fitting(e.Proxies, maxTold)
	e.Away, away = fitting(e.Away, maxTold)
	e.LeftOut += proxies + away
	e.Change = nil // its stages are those of the control plane that was asked
	return e
}

func (pq *PeerQueries) proxies(q proxiesQuestion) *ProxyList {
	out := ownProxies(pq.Proxies, pq.Changes, pq.Explain, q)
	var proxies, disconnected int
	out.Proxies, proxies = fitting(out.Proxies, maxTold)
	out.Disconnected, disconnected = fitting(out.Disconnected, maxTold)
	out.LeftOut = proxies + disconnected
	return &out
}

func (pq *PeerQueries) proxy(q *proxyQuestion) any {
	p, ok := pq.Proxies.Proxy(q.Proxy)
	if !ok {
		return proxyAnswer{}
	}
	judge(pq.Changes, &p)
	blame(pq.Explain, []server.ProxyState{p})
	return proxyAnswer{&ProxyDetail{Now: time.Now(), Proxy: p, Node: p.Proxy}}
}

func (pq *PeerQueries) stale() *explain.Stale {
	pq.turn.Lock()
	defer pq.turn.Unlock()
	s := pq.Explain.Stale()
	var holders, away int
	s.Holders, holders = fitting(s.Holders, maxTold)
	s.Away, away = fitting(s.Away, maxTold)
	s.LeftOut = holders + away
	return s
}

// everywhere reports whether a page is about the proxies of all control planes.
func (h *handler) everywhere(r *http.Request) bool {
	return h.stages.Peers != nil && !r.URL.Query().Has("local")
}

// aboutAll removes HeaderOthers from an answer about all control planes.
func aboutAll(w http.ResponseWriter) { w.Header().Del(HeaderOthers) }
