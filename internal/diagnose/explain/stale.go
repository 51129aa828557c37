package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// Stale lists the proxies that may still send requests to endpoints that are gone.
type Stale struct {
	Now     time.Time      `json:"now"`
	Holders []StaleHolder  `json:"holders"`
	Away    []AwayFromMesh `json:"disconnected"`
	LeftOut int            `json:"leftOut,omitempty"` // of both lists, what did not fit
	// Others are the other control planes that were asked; their proxies are in the lists. nil: there are
	// no others, or they were not asked.
	Others []PeerQuery `json:"controlPlanes,omitempty"`
}

// StaleHolder is a connected proxy with one endpoint that it should not have any more.
type StaleHolder struct {
	ID        string                `json:"id"`
	Name      string                `json:"name"`
	Namespace string                `json:"namespace"`
	Address   string                `json:"address"`
	Cluster   string                `json:"cluster"`
	Since     time.Time             `json:"since"` // when the removal was observed
	Reasons   []distribution.Reason `json:"reasons"`
	// ControlPlane is the one that the proxy is connected to; empty: the one that was asked.
	ControlPlane string `json:"controlPlane,omitempty"`
}

// AwayFromMesh is a disconnected proxy that may run, see Explainer.Disconnected. If it does, it uses what it had when its stream
// ended.
type AwayFromMesh struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	Since     time.Time `json:"since"`     // end of its stream
	Endpoints int       `json:"endpoints"` // removed since then, in the whole mesh
	// ControlPlane is the one that the proxy was connected to; empty: the one that was asked.
	ControlPlane string `json:"controlPlane,omitempty"`
}

// Stale lists the proxies that hold endpoints which are gone, the longest first, and all disconnected proxies.
func (x *Explainer) Stale() *Stale {
	now := time.Now()
	gone, removed := x.gone()
	out := &Stale{Now: now, Holders: []StaleHolder{}, Away: []AwayFromMesh{}}
	for _, h := range x.Proxies.Holders(gone) {
		out.Holders = append(out.Holders, StaleHolder{ID: h.ID, Name: h.Name, Namespace: h.Namespace, Address: h.Endpoint.Address,
			Cluster: h.Cluster, Since: h.Endpoint.Since, Reasons: h.Reasons})
	}
	out.sort()
	for _, p := range x.Disconnected() {
		out.Away = append(out.Away, AwayFromMesh{ID: p.ID, Name: p.Name, Namespace: p.Namespace, Since: p.Since, Endpoints: missedBy(&p, removed)})
	}
	return out
}

// sort puts the longest first.
func (s *Stale) sort() {
	slices.SortFunc(s.Holders, func(a, b StaleHolder) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Cluster, b.Cluster))
	})
}

// gone returns the removed endpoints that the change log remembers, with the hosts that they belonged to.
func (x *Explainer) gone() ([]distribution.GoneEndpoint, []changelog.RemovedEndpoint) {
	removed := x.Changes.RemovedEndpoints(0)
	snap := x.Snapshot()
	hosts := map[model.Key][]string{}
	out := make([]distribution.GoneEndpoint, len(removed))
	for i := range removed {
		r := &removed[i]
		h, known := hosts[r.Object]
		if !known {
			h = hostsOf(snap, r)
			hosts[r.Object] = h
		}
		out[i] = distribution.GoneEndpoint{Revision: r.Revision, Since: r.Observed, Hosts: h, Address: r.Address}
	}
	return out, removed
}

// hostsOf returns the hosts of the services that an endpoint belonged to.
func hostsOf(snap *store.Snapshot, r *changelog.RemovedEndpoint) []string {
	var out []string
	for _, h := range r.Hosts {
		out = append(out, string(h))
	}
	if s, ok := snap.Get(r.Service).(*model.Service); ok {
		out = append(out, string(s.Hostname))
	}
	if r.Labels == nil {
		return out
	}
	for o := range snap.All(model.KindServiceEntry) {
		e, ok := o.(*model.ServiceEntry)
		if !ok || e.Namespace != r.Object.Namespace || len(e.Template.Selector) == 0 || !model.SelectorMatches(e.Template.Selector, r.Labels) {
			continue
		}
		for _, h := range e.Hosts {
			out = append(out, string(h))
		}
	}
	return out
}

// missedBy counts the endpoints that were removed after a proxy last had everything.
func missedBy(p *distribution.Disconnected, removed []changelog.RemovedEndpoint) int {
	n := 0
	for i := range removed {
		if removed[i].Revision > p.Settled {
			n++
		}
	}
	return n
}

// staleAfter is the age at which a removal that a proxy does not have yet makes the proxy stale.
const staleAfter = time.Second

// Late returns the holders of endpoints that were removed more than staleAfter ago.
func (s *Stale) Late() []StaleHolder {
	limit := s.Now.Add(-staleAfter)
	return slices.DeleteFunc(slices.Clone(s.Holders), func(h StaleHolder) bool { return h.Since.After(limit) })
}

// StaleProxies counts the connected proxies that hold endpoints which were removed more than staleAfter
// ago.
func (x *Explainer) StaleProxies() int {
	gone, _ := x.gone()
	limit := time.Now().Add(-staleAfter)
	old := slices.DeleteFunc(gone, func(g distribution.GoneEndpoint) bool { return g.Since.After(limit) })
	seen := map[string]bool{}
	for _, h := range x.Proxies.Holders(old) {
		seen[h.ID] = true
	}
	return len(seen)
}

// UnansweredFor returns the age of the oldest response that a proxy has not answered.
func (x *Explainer) UnansweredFor() time.Duration {
	at := x.Proxies.OldestUnanswered()
	if at.IsZero() {
		return 0
	}
	return time.Since(at)
}
