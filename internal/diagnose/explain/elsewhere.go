package explain

import (
	"maps"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// Each control plane knows its own proxies only. Revisions differ between control planes, so their answers
// about an object are joined if they have the same form of the object.

// PeerQuery is another control plane that was asked.
type PeerQuery struct {
	ControlPlane string `json:"controlPlane"`      // the peer's address
	Silent       string `json:"silent,omitempty"`  // why there is no answer; empty: there is one
	LeftOut      int    `json:"leftOut,omitempty"` // how much of its answer did not fit
}

// PeerReply is the answer of another control plane; nil if it is silent.
type PeerReply[T any] struct {
	PeerQuery
	Answer *T
}

// PeerStatus is the status of an object on another control plane.
type PeerStatus struct {
	PeerQuery
	State changelog.State `json:"state,omitempty"` // also OtherVersion; empty: the control plane is silent
	// Counts are of its proxies, if it has the same form of the object.
	Counts Counts `json:"counts"`
	// The other fields describe the object that it has.
	Exists          bool   `json:"exists"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Origin          string `json:"origin,omitempty"`
}

// OtherVersion is the state of an object if a control plane has another form of it.
const OtherVersion changelog.State = "other version"

// Lacks reports whether that control plane is not known to have sent the same form of the object to its
// proxies.
func (o *PeerStatus) Lacks() bool {
	return o.State != changelog.Distributing && o.State != changelog.Distributed
}

// Everywhere reports whether all other control planes that were asked have sent the same form of the object
// to their proxies.
func (e *Explanation) Everywhere() bool {
	return !slices.ContainsFunc(e.Elsewhere, func(o PeerStatus) bool { return o.Lacks() })
}

// sameForm reports whether two control planes have the same form of an object. The versions of an API
// server may differ for equal content: a control plane keeps its version if a newer one changes nothing for
// the mesh.
func sameForm(a, b *Explanation) bool {
	switch {
	case a.Exists != b.Exists:
		return false
	case !a.Exists || a.ResourceVersion == b.ResourceVersion:
		return true
	}
	return a.Origin == fromKubernetes && b.Origin == fromKubernetes && a.Content != "" && a.Content == b.Content
}

// peerStatus returns the answer of another control plane, compared with this one's.
func (e *Explanation) peerStatus(s *PeerReply[Explanation]) PeerStatus {
	out := PeerStatus{PeerQuery: s.PeerQuery}
	if s.Answer == nil {
		return out
	}
	out.Exists, out.ResourceVersion, out.Origin = s.Answer.Exists, s.Answer.ResourceVersion, s.Answer.Origin
	if !sameForm(e, s.Answer) {
		out.State = OtherVersion
		return out
	}
	out.State, out.Counts = s.Answer.State, s.Answer.Counts
	return out
}

// Missing returns the node IDs of all proxies that are disconnected from some control plane without the
// change.
func (e *Explanation) Missing(said []PeerReply[Explanation]) []string {
	ids := idsOf(e.Away)
	for i := range said {
		if a := said[i].Answer; a != nil {
			ids = append(ids, idsOf(a.Away)...)
		}
	}
	return unique(ids)
}

func idsOf(list []distribution.ProxySyncStatus) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].ID
	}
	return out
}

func unique(ids []string) []string {
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Join adds the answers of other control planes, which were asked with Ask.Apart. connected has the proxies
// of Missing that are connected to any control plane. Times are converted to the local clock.
func (e *Explanation) Join(said []PeerReply[Explanation], connected map[string]bool, ask Ask) {
	away := e.Away
	e.Away, e.Now = nil, time.Now()
	for i := range said {
		o, a := e.peerStatus(&said[i]), said[i].Answer
		e.Elsewhere = append(e.Elsewhere, o)
		if o.Lacks() {
			continue
		}
		own(a.Proxies, o.ControlPlane, e.Now.Sub(a.Now))
		own(a.Away, o.ControlPlane, e.Now.Sub(a.Now))
		e.Counts.join(&a.Counts)
		e.Proxies, e.LeftOut = append(e.Proxies, a.Proxies...), e.LeftOut+a.LeftOut
		away = append(away, a.Away...)
	}
	gone := once(away, connected, func(w *distribution.ProxySyncStatus) string { return w.ID })
	e.Counts.Disconnected += len(gone)
	e.Proxies = append(e.Proxies, gone...)
	sortSyncStatuses(e.Proxies)
	if over := len(e.Proxies) - ask.Max; over > 0 {
		e.Proxies, e.LeftOut = e.Proxies[:ask.Max], e.LeftOut+over
	}
	if e.State == changelog.Distributed && (e.Counts.Behind > 0 || !e.Everywhere()) {
		e.State = changelog.Distributing
	}
}

// own sets the control plane of proxies, and converts times to a clock that is ahead by a duration.
func own(list []distribution.ProxySyncStatus, controlPlane string, ahead time.Duration) {
	for i := range list {
		list[i].ControlPlane = controlPlane
		shiftReasons(list[i].Reasons, ahead)
	}
}

func shiftReasons(list []distribution.Reason, ahead time.Duration) {
	for i := range list {
		Shift(&list[i].Since, ahead)
	}
}

// Shift converts a time to a clock that is ahead by a duration. The zero time stays zero.
func Shift(t *time.Time, ahead time.Duration) {
	if !t.IsZero() {
		*t = t.Add(ahead)
	}
}

// once returns the proxies that are connected nowhere, each the first time that it occurs.
func once[T any](away []T, connected map[string]bool, id func(*T) string) []T {
	seen := map[string]bool{}
	maps.Copy(seen, connected)
	return slices.DeleteFunc(away, func(p T) bool {
		again := seen[id(&p)]
		seen[id(&p)] = true
		return again
	})
}

func (c *Counts) join(o *Counts) {
	c.Acked += o.Acked
	c.Superseded += o.Superseded
	c.Behind += o.Behind
	c.Refused += o.Refused
	c.Disconnected += o.Disconnected
	c.NotConcerned += o.NotConcerned
}

// Missing returns the node IDs of all proxies that are disconnected from some control plane.
func (s *Stale) Missing(said []PeerReply[Stale]) []string {
	var ids []string
	for _, p := range s.Away {
		ids = append(ids, p.ID)
	}
	for i := range said {
		if a := said[i].Answer; a != nil {
			for _, p := range a.Away {
				ids = append(ids, p.ID)
			}
		}
	}
	return unique(ids)
}

// Join adds the answers of other control planes. connected is as in Explanation.Join.
func (s *Stale) Join(said []PeerReply[Stale], connected map[string]bool) {
	s.Now = time.Now()
	for i := range said {
		a := said[i].Answer
		if a != nil {
			a.own(said[i].ControlPlane, s.Now.Sub(a.Now))
			said[i].LeftOut = a.LeftOut
			s.Holders, s.Away = append(s.Holders, a.Holders...), append(s.Away, a.Away...)
		}
		s.Others = append(s.Others, said[i].PeerQuery)
	}
	s.sort()
	// If a proxy left several control planes, the one that it left last knows most.
	slices.SortStableFunc(s.Away, func(a, b AwayFromMesh) int { return b.Since.Compare(a.Since) })
	s.Away = once(s.Away, connected, func(p *AwayFromMesh) string { return p.ID })
}

// own is like the function of that name.
func (s *Stale) own(controlPlane string, ahead time.Duration) {
	for i := range s.Holders {
		h := &s.Holders[i]
		h.ControlPlane = controlPlane
		Shift(&h.Since, ahead)
		shiftReasons(h.Reasons, ahead)
	}
	for i := range s.Away {
		s.Away[i].ControlPlane = controlPlane
		Shift(&s.Away[i].Since, ahead)
	}
}
