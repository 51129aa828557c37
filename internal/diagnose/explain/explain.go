// Package explain answers people's questions about a running control plane: what became
// of an object's last change, which proxies do not have it and why, what a proxy should
// have, why a call goes where it goes.
//
// It reads the stages and changes nothing. An answer is worked out when it is asked for:
// nothing is kept for it.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// Explainer asks the stages of one control plane. All fields are read-only, and all of
// its methods may be called at any time, by many goroutines.
type Explainer struct {
	Snapshot func() *store.Snapshot
	Mesh     *model.Mesh // that the control plane was started with; nil: the default
	Changes  Changes
	Proxies  distribution.Proxies
	// Problems are what is wrong with an object as it was read, a line each; nil: that is not known.
	Problems func(model.Key) []string
}

// Changes is what changelog.Log is to this package.
type Changes interface {
	Change(model.Revision) (changelog.Change, bool)
	LastChange(model.Key) (changelog.LastChange, bool)
	RemovedEndpoints(after model.Revision) []changelog.RemovedEndpoint
}

// Explanation is what is known of an object's last change.
type Explanation struct {
	Now    time.Time `json:"now"` // by the control plane's clock
	Object model.Key `json:"object"`
	// Exists: it is in the store. The next three are what is there.
	Exists          bool   `json:"exists"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Origin          string `json:"origin,omitempty"`
	Content         string `json:"content,omitempty"` // see Content
	// Problems are what is wrong with it as it was read: what has errors is not in force, a warning may be of a
	// part that is left out.
	Problems []string `json:"problems,omitempty"`

	// Revision is that of its last change; 0: there is none that the stages know of yet.
	Revision  model.Revision      `json:"revision,omitempty"`
	Operation changelog.Operation `json:"operation,omitempty"`
	Observed  time.Time           `json:"observed,omitzero"`
	Committed time.Time           `json:"committed,omitzero"` // at the API server, where that is known
	State     changelog.State     `json:"state"`
	// Change is the whole of it; nil where the change log has forgotten it.
	Change *changelog.Change `json:"change,omitempty"`

	Counts Counts `json:"counts"`
	// Proxies are those that do not have it, or all; LeftOut did not fit.
	Proxies []distribution.ProxySyncStatus `json:"proxies"`
	LeftOut int                            `json:"leftOut,omitempty"`
	// Away are those that are disconnected without it, where they were asked for apart: neither
	// Counts nor Proxies has them then.
	Away []distribution.ProxySyncStatus `json:"away,omitempty"`
	// PeerStatus is how it stands at other control planes. Counts and Proxies have theirs in them,
	// of those that have the same form of it. nil: there are none, or they were not asked.
	Elsewhere []PeerStatus `json:"controlPlanes,omitempty"`
}

// Counts are proxies by their position.
type Counts struct {
	Acked        int `json:"acked"`
	Superseded   int `json:"superseded"` // of Acked: they have a newer form of it
	Behind       int `json:"behind"`
	Refused      int `json:"refused"`
	Disconnected int `json:"disconnected"`
	NotConcerned int `json:"notConcerned"`
}

// Concerned are the connected proxies that need it.
func (c Counts) Concerned() int { return c.Acked + c.Behind + c.Refused }

// Percent is how many of those that need it have it; 100 where nobody does.
func (c Counts) Percent() float64 {
	if c.Concerned() == 0 {
		return 100
	}
	return 100 * float64(c.Acked) / float64(c.Concerned())
}

// Ask says how much of an answer is wanted.
type Ask struct {
	All bool // every proxy, not only those that do not have it
	Max int  // proxies in the answer
	// Apart: those that are disconnected are told apart, as another control plane may have them.
	Apart bool
}

// Object explains an object's last change; an error where nobody has ever seen it.
func (x *Explainer) Object(key model.Key, ask Ask) (*Explanation, error) {
	last, known := x.Changes.LastChange(key)
	snap := x.Snapshot()
	o := snap.Get(key)
	var problems []string
	if x.Problems != nil {
		problems = x.Problems(key)
	}
	switch {
	case o == nil && !known && len(problems) > 0:
		return nil, fmt.Errorf("no version of %s is in force: %s", key, strings.Join(problems, "; "))
	case o == nil && !known:
		return nil, fmt.Errorf("there is no %s, and none was deleted lately", key)
	}
	e := &Explanation{Now: time.Now(), Object: key, Exists: o != nil, Problems: problems, State: changelog.Building, Proxies: []distribution.ProxySyncStatus{}}
	if o != nil {
		m := o.Metadata()
		e.ResourceVersion, e.Origin, e.Content = m.ResourceVersion, m.Origin, Content(o)
	}
	if !known || last.ResourceVersion != e.ResourceVersion {
		return e, nil // in the store, and not yet on its way
	}
	e.Revision, e.Operation, e.Observed, e.Committed = last.Revision, last.Operation, last.Observed, last.Committed
	e.State = changelog.Distributed
	if c, ok := x.Changes.Change(last.Revision); ok {
		e.Change, e.State = &c, c.State
	}
	if e.State != changelog.Building {
		e.distribute(x.living(x.Proxies.Distribution(&distribution.Query{
			Revision: last.Revision, Object: key, Shared: e.Change != nil && e.Change.ObjectCount > 1,
			Moved: o == nil || last.Moved, Selects: x.selects(snap, o, &last),
		})), ask)
	}
	return e, nil
}

// selects reports for proxies whether an object may concern them, by the rules of derive; nil: any proxy.
// It is for proxies that are disconnected: what connected ones have says more.
func (x *Explainer) selects(snap *store.Snapshot, o model.Object, last *changelog.LastChange) func(*model.Proxy) bool {
	if o == nil || last.Moved {
		return nil
	}
	root := x.mesh(snap).RootNamespace
	switch o := o.(type) {
	case *model.ProxyConfig: // it is for agents and the injector
		return func(*model.Proxy) bool { return false }
	case *model.Sidecar:
		return func(p *model.Proxy) bool {
			return p.Type == model.ProxySidecar && o.IsFor(p.Namespace, p.Labels, root)
		}
	case *model.Secret:
		return func(p *model.Proxy) bool { // of other namespaces, routers may have it by a ReferenceGrant
			return o.Kind != model.KindSecret || p.Namespace == o.Namespace || p.Type == model.ProxyRouter
		}
	case *model.PeerAuthentication:
		if o.Disables() { // callers learn of it, too
			return nil
		}
		return func(p *model.Proxy) bool { return model.IsFor(o, p.Namespace, p.Labels, root) }
	case *model.AuthorizationPolicy, *model.RequestAuthentication, *model.Telemetry, *model.EnvoyFilter, *model.WasmPlugin:
		return func(p *model.Proxy) bool { return model.IsFor(o.(model.Selecting), p.Namespace, p.Labels, root) }
	}
	return nil
}

// living leaves out proxies that went for good: those of Pods that are gone.
func (x *Explainer) living(all []distribution.ProxySyncStatus) []distribution.ProxySyncStatus {
	if !slices.ContainsFunc(all, func(w distribution.ProxySyncStatus) bool { return w.Position == distribution.StateDisconnected }) {
		return all
	}
	removed := x.Changes.RemovedEndpoints(0)
	dead := map[string]bool{}
	for _, p := range x.Proxies.Disconnected() {
		dead[p.ID] = !x.mayLive(&p, removed)
	}
	return slices.DeleteFunc(all, func(w distribution.ProxySyncStatus) bool {
		return w.Position == distribution.StateDisconnected && dead[w.ID]
	})
}

// distribute counts proxies, and keeps those that are asked for.
func (e *Explanation) distribute(all []distribution.ProxySyncStatus, ask Ask) {
	for _, w := range all {
		if ask.Apart && w.Position == distribution.StateDisconnected {
			e.Away = append(e.Away, w)
			continue
		}
		e.Counts.add(&w)
		missing := w.Position != distribution.StateACKed && w.Position != distribution.StateNotConcerned
		switch {
		case !missing && !ask.All:
		case len(e.Proxies) >= ask.Max:
			e.LeftOut++
		default:
			e.Proxies = append(e.Proxies, w)
		}
	}
	sortWhereabouts(e.Proxies)
	if e.State == changelog.Distributed && e.Counts.Behind > 0 {
		e.State = changelog.Distributing // proxies that have connected since
	}
}

func (c *Counts) add(w *distribution.ProxySyncStatus) {
	switch w.Position {
	case distribution.StateACKed:
		c.Acked++
		if w.Superseded {
			c.Superseded++
		}
	case distribution.StateBehind:
		c.Behind++
	case distribution.StateRefused:
		c.Refused++
	case distribution.StateDisconnected:
		c.Disconnected++
	default:
		c.NotConcerned++
	}
}
