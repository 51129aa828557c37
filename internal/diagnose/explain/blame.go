package explain

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// RefusedVersion identifies what proxies refuse.
type RefusedVersion struct {
	Type, Name, Version string // Version is empty for a response that is refused as a whole, whose Name is empty too
}

// Blames returns the objects that refusals are about.
func (x *Explainer) Blames() map[RefusedVersion]distribution.Blame {
	out := map[RefusedVersion]distribution.Blame{}
	snap := x.Snapshot()
	causes := x.Causes(snap)
	for _, r := range x.Proxies.Refusals() {
		version := RefusedVersion{r.Type.String(), r.Name, r.Version}
		if _, known := out[version]; !known {
			out[version] = causes.blame(r)
		}
	}
	return out
}

// blame returns the cause of a refusal for people: the likeliest objects first.
func (c *Causes) blame(r *distribution.Refusal) distribution.Blame {
	cause := c.Of(r)
	out := distribution.Blame{Sure: cause.Sure || cause.Each, Mesh: cause.Mesh}
	slices.SortStableFunc(cause.Objects, func(a, b model.Key) int {
		return cmp.Or(cmp.Compare(c.suspicion(r, b), c.suspicion(r, a)), cmp.Compare(c.lastRevision(b), c.lastRevision(a)))
	})
	for _, k := range cause.Objects {
		of := distribution.Blamed{Object: k}
		if o := c.snap.Get(k); o != nil {
			of.Origin = o.Metadata().Origin
		}
		out.Objects = append(out.Objects, of)
	}
	return out
}

// suspicion is greater for objects whose content Envoy gets as it was written, and no other check covers.
func (c *Causes) suspicion(r *distribution.Refusal, k model.Key) int {
	switch k.Kind {
	case model.KindEnvoyFilter:
		return 2
	case model.KindWasmPlugin, model.KindTelemetry:
		if r.Type != resource.Cluster {
			return 1
		}
	}
	return 0
}

func (c *Causes) lastRevision(k model.Key) model.Revision {
	last, _ := c.changes.LastChange(k)
	return last.Revision
}

// ObjectRefusal is a resource that proxies refuse, and that is made from an object which is to blame, or may be.
type ObjectRefusal struct {
	Type    string             `json:"type"` // "LDS"
	Name    string             `json:"name,omitempty"`
	Message string             `json:"message"`
	Proxies int                `json:"proxies"` // how many of this control plane refuse it
	Blame   distribution.Blame `json:"blame"`
}

// refusalsOf returns the refusals that an object is to blame for, or may be.
func (x *Explainer) refusalsOf(key model.Key) (out []ObjectRefusal) {
	all := x.Proxies.Refusals()
	if len(all) == 0 {
		return nil
	}
	causes := x.Causes(x.Snapshot())
	for _, r := range all {
		if b := causes.blame(r); b.Has(key) {
			out = append(out, ObjectRefusal{r.Type.String(), r.Name, r.Message, r.Proxies, b})
		}
	}
	slices.SortFunc(out, func(a, b ObjectRefusal) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Message, b.Message))
	})
	return out
}
