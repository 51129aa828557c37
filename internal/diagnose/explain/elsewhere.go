package explain

import (
	"maps"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// Each control plane knows its own proxies. What several say of an object is about the same
// change where they have the same form of the object: revisions are each one's own.

// PeerQuery is another control plane that was asked.
type PeerQuery struct {
	ControlPlane string `json:"controlPlane"`      // its address
	Silent       string `json:"silent,omitempty"`  // why it has told nothing; empty: it has answered
	LeftOut      int    `json:"leftOut,omitempty"` // of what it told, what did not fit
}

// PeerReply is what another control plane answered; nil where it is silent.
type PeerReply[T any] struct {
	PeerQuery
	Answer *T
}

// PeerStatus is how an object stands at another control plane.
type PeerStatus struct {
	PeerQuery
	State changelog.State `json:"state,omitempty"` // OtherVersion too; empty: it is silent
	// Counts are of its proxies, where it has the same form of the object.
	Counts Counts `json:"counts"`
	// The rest is what it has of the object.
	Exists          bool   `json:"exists"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Origin          string `json:"origin,omitempty"`
}

// OtherVersion is the state of an object of which a control plane has another form.
const OtherVersion changelog.State = "other version"

// Lacks tells whether that control plane is not known to have told its proxies of the same
// form of the object.
func (o *PeerStatus) Lacks() bool {
	return o.State != changelog.Distributing && o.State != changelog.Distributed
}

// Everywhere tells whether all other control planes that were asked have told their proxies of
// the same form of the object.
func (e *Explanation) Everywhere() bool {
	return !slices.ContainsFunc(e.Elsewhere, func(o PeerStatus) bool { return o.Lacks() })
}

// sameForm tells whether two control planes have the same of an object. An API server's
// versions may differ where its objects say the same: a control plane keeps the one that it
// has when another one comes that means nothing to the mesh.
func sameForm(a, b *Explanation) bool {
	switch {
	case a.Exists != b.Exists:
		return false
	case !a.Exists || a.ResourceVersion == b.ResourceVersion:
		return true
	}
	return a.Origin == fromKubernetes && b.Origin == fromKubernetes && a.Content != "" && a.Content == b.Content
}

// elsewhere is what another control plane said, as this one sees it.
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

// Missing are the node ids of all proxies that are disconnected from some control plane without
// the change, with what the others said.
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

// Join adds what other control planes said. It was asked for with Ask.Apart everywhere;
// connected are those of Missing that are connected to any of them. Times become those of this
// one's clock.
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
	sortWhereabouts(e.Proxies)
	if over := len(e.Proxies) - ask.Max; over > 0 {
		e.Proxies, e.LeftOut = e.Proxies[:ask.Max], e.LeftOut+over
	}
	if e.State == changelog.Distributed && (e.Counts.Behind > 0 || !e.Everywhere()) {
		e.State = changelog.Distributing
	}
}

// own says whose proxies are, and brings times to another clock, which is ahead by so much.
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

// Shift brings a time to another clock, which is ahead by so much; no time stays none.
func Shift(t *time.Time, ahead time.Duration) {
	if !t.IsZero() {
		*t = t.Add(ahead)
	}
}

// once gives those proxies that are connected nowhere, each the first time.
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

// Missing are the node ids of all proxies that are disconnected from some control plane.
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

// Join adds what other control planes said; connected is as in Explanation.Join.
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
	// Of those that left one after the other, what the last one knows counts.
	slices.SortStableFunc(s.Away, func(a, b AwayFromMesh) int { return b.Since.Compare(a.Since) })
	s.Away = once(s.Away, connected, func(p *AwayFromMesh) string { return p.ID })
}

// own is as the function of that name.
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
