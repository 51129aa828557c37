// Package explain answers people's questions about a running control plane: which proxies have an object's
// last change, which do not and why, what a proxy should have, and what decides a call.
//
// It reads the stages and changes nothing. Each answer is computed on demand; nothing is stored for it.
//
// Resources carry the objects that they are made from, so that no answer parses a resource to find its
// objects. Start reading at Explainer.Object, Causes.Of for refusals, and Explainer.Why for calls.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// Explainer reads the stages of one control plane. All fields are read-only. Its methods may be called at
// any time, by many goroutines.
type Explainer struct {
	Snapshot func() *store.Snapshot
	Mesh     *model.Mesh // the configuration of the control plane's start; nil: the default
	Changes  Changes
	Proxies  distribution.Proxies
	// Problems returns the problems that were found when an object was read. nil: they are not known.
	Problems func(model.Key) problem.List
	// Place returns the file and line of a field of an object in force; "" if they are not known. nil: they never are.
	Place func(m *model.Meta, field string) string
}

// Changes is the part of changelog.Log that this package reads.
type Changes interface {
	Change(model.Revision) (changelog.Change, bool)
	LastChange(model.Key) (changelog.LastChange, bool)
	RemovedEndpoints(after model.Revision) []changelog.RemovedEndpoint
}

// Explanation is the status of an object's last change.
type Explanation struct {
	Now    time.Time `json:"now"` // by the control plane's clock
	Object model.Key `json:"object"`
	// Exists is set if the object is in the store. The next three fields describe it then.
	Exists          bool   `json:"exists"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Origin          string `json:"origin,omitempty"`
	Content         string `json:"content,omitempty"` // see Content
	// Problems were found when the object was read. An object with errors is not in force; a warning may be
	// about a part that is left out.
	Problems []string `json:"problems,omitempty"`
	// Error is the first error of Problems: the newest version of the object is not in force, or only in part. nil: there is none.
	Error *problem.Problem `json:"error,omitempty"`
	// Partly: the valid part of the version with Error is in force, because no version without errors is known.
	Partly bool `json:"partly,omitempty"`

	// Revision is that of the last change; 0: no stage knows of one yet.
	Revision  model.Revision      `json:"revision,omitempty"`
	Operation changelog.Operation `json:"operation,omitempty"`
	Observed  time.Time           `json:"observed,omitzero"`
	Committed time.Time           `json:"committed,omitzero"` // at the API server; zero: not known
	State     changelog.State     `json:"state"`
	// Change is the change's entry in the change log; nil if the log has dropped it.
	Change *changelog.Change `json:"change,omitempty"`

	Counts Counts `json:"counts"`
	// Refusals are what proxies of this control plane refuse because of the object, or may.
	Refusals []ObjectRefusal `json:"refusals,omitempty"`
	// Proxies are those that do not have the change, or all. LeftOut counts those that did not fit.
	Proxies []distribution.ProxySyncStatus `json:"proxies"`
	LeftOut int                            `json:"leftOut,omitempty"`
	// Away are proxies that are disconnected without the change, if they were requested apart. Counts and
	// Proxies do not include them then.
	Away []distribution.ProxySyncStatus `json:"away,omitempty"`
	// Elsewhere is the status on other control planes. Counts and Proxies include their proxies, if they
	// have the same form of the object. nil: there are no others, or they were not asked.
	Elsewhere []PeerStatus `json:"controlPlanes,omitempty"`
}

// Counts counts proxies by their state.
type Counts struct {
	Acked        int `json:"acked"`
	Superseded   int `json:"superseded"` // part of Acked: they have a newer form of it
	Behind       int `json:"behind"`
	Refused      int `json:"refused"`
	Disconnected int `json:"disconnected"`
	NotConcerned int `json:"notConcerned"`
}

// Concerned is the number of connected proxies that need the change.
func (c Counts) Concerned() int { return c.Acked + c.Behind + c.Refused }

// Percent is the share of the proxies in need of the change that have it; 100 if no proxy needs it.
func (c Counts) Percent() float64 {
	if c.Concerned() == 0 {
		return 100
	}
	return 100 * float64(c.Acked) / float64(c.Concerned())
}

// Ask describes how much of an answer is requested.
type Ask struct {
	All bool // every proxy, not only those that do not have it
	Max int  // limit of proxies in the answer
	// Apart puts disconnected proxies into a list of their own, because they may be connected to another
	// control plane.
	Apart bool
}

// Object explains an object's last change. It returns an error if the object is neither there nor was
// deleted lately.
func (x *Explainer) Object(key model.Key, ask Ask) (*Explanation, error) {
	last, known := x.Changes.LastChange(key)
	snap := x.Snapshot()
	o := snap.Get(key)
	problems, failure, partly := x.problems(key)
	switch {
	case o == nil && !known && len(problems) > 0:
		return nil, fmt.Errorf("%s: no version is in force: %s", key, strings.Join(problems, "; "))
	case o == nil && !known:
		return nil, fmt.Errorf("%s: not found, and not deleted lately", key)
	}
	e := &Explanation{Now: time.Now(), Object: key, Exists: o != nil, Problems: problems, Error: failure, Partly: partly, State: changelog.Building, Proxies: []distribution.ProxySyncStatus{}}
	if o != nil {
		m := o.Metadata()
		e.ResourceVersion, e.Origin, e.Content = m.ResourceVersion, m.Origin, Content(o)
	}
	if !known || last.ResourceVersion != e.ResourceVersion {
		return e, nil // it is in the store, and not yet on its way
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
	if e.Counts.Refused > 0 {
		e.Refusals = x.refusalsOf(key)
	}
	return e, nil
}

// problems returns the problems of an object as lines without the object and its place, and the first error. partly reports
// that the valid part of the version with the error is in force.
func (x *Explainer) problems(key model.Key) (lines []string, failure *problem.Problem, partly bool) {
	if x.Problems == nil {
		return nil, nil, false
	}
	for _, p := range x.Problems(key) {
		if p.Severity == problem.SeverityError && failure == nil {
			failure = new(p)
		}
		partly = partly || p.Code == code.PartlyUsed
		p.File, p.Line, p.Object = "", 0, model.Key{}
		lines = append(lines, p.String())
	}
	return lines, failure, failure != nil && partly
}

// errorOf returns the first error of an object's newest version; nil: that version is in force. partly has the meaning of
// Explanation.Partly.
func (x *Explainer) errorOf(key model.Key) (failure *problem.Problem, partly bool) {
	_, failure, partly = x.problems(key)
	return failure, partly
}

// RevisionStatus is the status of one change.
type RevisionStatus struct {
	Now    time.Time        `json:"now"`
	Change changelog.Change `json:"change"`
	Counts Counts           `json:"counts"`
	// Proxies are those that do not have the change, or all. LeftOut counts those that did not fit.
	Proxies []distribution.ProxySyncStatus `json:"proxies"`
	LeftOut int                            `json:"leftOut,omitempty"`
}

// Revision explains one change. It returns false if the change log does not have it.
func (x *Explainer) Revision(rev model.Revision, ask Ask) (*RevisionStatus, bool) {
	c, ok := x.Changes.Change(rev)
	if !ok {
		return nil, false
	}
	e := &Explanation{State: c.State, Proxies: []distribution.ProxySyncStatus{}}
	if c.State != changelog.Building {
		ask.Apart = false
		e.distribute(x.living(x.Proxies.Distribution(&distribution.Query{Revision: rev})), ask)
	}
	return &RevisionStatus{Now: time.Now(), Change: c, Counts: e.Counts, Proxies: e.Proxies, LeftOut: e.LeftOut}, true
}

// selects returns a function that reports whether an object may concern a proxy, by the rules of derive;
// nil: every proxy. It is for disconnected proxies whose tables are closed. Connected proxies have tables
// that know more.
func (x *Explainer) selects(snap *store.Snapshot, o model.Object, last *changelog.LastChange) func(*model.Proxy) bool {
	if o == nil || last.Moved || byTopology(o) {
		return nil
	}
	root := x.mesh(snap).RootNamespace
	switch o := o.(type) {
	case *model.ProxyConfig: // only agents and the injector read it
		return func(*model.Proxy) bool { return false }
	case *model.Sidecar:
		return func(p *model.Proxy) bool {
			return p.Type == model.ProxySidecar && o.IsFor(p.Namespace, p.Labels, root)
		}
	case *model.Secret:
		return func(p *model.Proxy) bool { // routers of other namespaces may have it by a ReferenceGrant
			return o.Kind != model.KindSecret || p.Namespace == o.Namespace || p.Type == model.ProxyRouter
		}
	case *model.PeerAuthentication:
		if o.Disables() { // callers also change their TLS
			return nil
		}
		return func(p *model.Proxy) bool { return model.IsFor(o, p.Namespace, p.Labels, root) }
	case *model.AuthorizationPolicy, *model.RequestAuthentication, *model.Telemetry, *model.EnvoyFilter, *model.WasmPlugin:
		return func(p *model.Proxy) bool { return model.IsFor(o.(model.Selecting), p.Namespace, p.Labels, root) }
	}
	return nil
}

// byTopology reports whether an object selects proxies by where they run, which their own labels do not say.
func byTopology(o model.Object) bool {
	var selectors []map[string]string
	switch o := o.(type) {
	case *model.Sidecar:
		selectors = append(selectors, o.Selector)
	case model.Selecting:
		selectors = model.Selectors(o)
	}
	return slices.ContainsFunc(selectors, model.SelectsByTopology)
}

// living leaves out proxies whose Pods are gone.
func (x *Explainer) living(all []distribution.ProxySyncStatus) []distribution.ProxySyncStatus {
	if !slices.ContainsFunc(all, func(w distribution.ProxySyncStatus) bool { return w.Position == distribution.StateDisconnected }) {
		return all
	}
	dead, r := map[string]bool{}, remaining{x: x, snap: x.Snapshot()}
	for _, p := range x.Proxies.Disconnected() {
		dead[p.ID] = !r.mayLive(&p)
	}
	return slices.DeleteFunc(all, func(w distribution.ProxySyncStatus) bool {
		return w.Position == distribution.StateDisconnected && dead[w.ID]
	})
}

// distribute counts proxies, and keeps those that the caller asked for.
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
	sortSyncStatuses(e.Proxies)
	if e.State == changelog.Distributed && e.Counts.Behind > 0 {
		e.State = changelog.Distributing // they connected since
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
