package explain

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Cause is what a refusal is about.
type Cause struct {
	// Objects are in order. One of them is meant, or each if Each is set. If there are none, the mesh's
	// configuration is meant.
	Objects []model.Key
	// Sure is set if the proxies' message quotes this object only, or if the object is the only input of
	// the resource that changed since the proxies accepted it.
	Sure bool
	// Each is set if all Objects are meant, because they name the Secret that is refused.
	Each bool
	// Mesh is set if the mesh's configuration may be meant as well.
	Mesh bool
	// Changed is set if all Objects changed since a proxy that refuses the resource last had it.
	Changed bool
}

// Causes finds the causes of refusals. It is for one snapshot and one goroutine.
type Causes struct {
	snap    *store.Snapshot
	changes Changes
	mesh    *model.Mesh
}

// Causes returns a finder of causes that reads objects from a snapshot.
func (x *Explainer) Causes(snap *store.Snapshot) *Causes {
	return &Causes{snap, x.Changes, x.mesh(snap)}
}

// Of returns the cause of a refusal. It starts from the origins of the refused resources. Objects that the
// message quotes are meant. If it quotes none, the objects are meant that changed since the proxies last
// accepted the resource. If none changed, each origin may be meant.
func (c *Causes) Of(r *distribution.Refusal) Cause {
	all := c.originsOf(r)
	if r.Type == resource.Secret {
		return Cause{Objects: c.naming(r, all), Sure: true, Each: true}
	}
	message := reason(r.Message)
	if quoted := c.quoted(r, message, all); len(quoted) > 0 {
		return Cause{Objects: quoted, Sure: len(quoted) == 1}
	}
	if c.quotesMesh(message) {
		logging := slices.DeleteFunc(all, func(k model.Key) bool { return k.Kind != model.KindTelemetry })
		return Cause{Objects: logging, Mesh: true}
	}
	news := slices.DeleteFunc(slices.Clone(all), func(k model.Key) bool { return !c.changed(r, k) })
	mesh := r.Since == 0 || c.meshChanged(r)
	switch own := r.Type == resource.Extension || r.Type == resource.Bootstrap; {
	case own: // the resource belongs to one object and does not depend on the mesh's configuration
		return Cause{Objects: written(all), Sure: r.Name != "" && len(written(all)) == 1}
	case len(news) == 0 && r.Since > 0 && mesh:
		return Cause{Mesh: true}
	case len(news) == 0:
		return Cause{Objects: written(all), Mesh: true}
	}
	sure := len(news) == 1 && r.Since > 0 && !mesh && c.cameWith(r, news[0])
	return Cause{Objects: written(news), Sure: sure, Mesh: mesh, Changed: r.Since > 0}
}

// originsOf returns the objects in the store that the refused resources are made from, in order.
func (c *Causes) originsOf(r *distribution.Refusal) []model.Key {
	var out model.OriginList
	for _, part := range r.About {
		out.AddAll(part.Entry.MadeFrom())
		for _, k := range part.Group.Keys() { // if its content is part of the resource, it is an origin of it as well
			if r.Since > 0 && c.changedSince(r, k) {
				out.Add(k)
			}
		}
	}
	keys := slices.Clone(out.Since(0).Keys())
	return slices.DeleteFunc(keys, func(k model.Key) bool { return c.snap.Get(k) == nil })
}

// written leaves out Services and other objects that are deployed with applications, unless there is
// nothing else. The wrong object is more often one that was written for the mesh.
func written(keys []model.Key) []model.Key {
	out := slices.DeleteFunc(slices.Clone(keys), func(k model.Key) bool { return slices.Contains(deployed, k.Kind) })
	if len(out) == 0 {
		return keys
	}
	return out
}

var deployed = []model.Kind{model.KindService, model.KindEndpointSlice, model.KindSecret, model.KindConfigMap}

// changed reports whether an origin is new to the proxies that refuse a resource: it changed since they
// accepted the resource, or it became an origin since then.
func (c *Causes) changed(r *distribution.Refusal, k model.Key) bool {
	if c.changedSince(r, k) {
		return true
	}
	return r.Since > 0 && slices.ContainsFunc(r.About, func(p distribution.Part) bool {
		e := p.Entry
		return e.Revision > r.Since && e.Added < e.Revision && e.MadeFrom().Has(k) && !e.WasMadeFrom().Has(k)
	})
}

// cameWith reports whether the change of an object made the refused resources what they are: each dates
// from the revision of the change, and lost no origin in it.
func (c *Causes) cameWith(r *distribution.Refusal, k model.Key) bool {
	last, known := c.changes.LastChange(k)
	return known && !slices.ContainsFunc(r.About, func(p distribution.Part) bool {
		now := p.Entry.MadeFrom()
		return p.Entry.Revision != last.Revision ||
			slices.ContainsFunc(p.Entry.WasMadeFrom().Keys(), func(k model.Key) bool { return !now.Has(k) })
	})
}

// changedSince reports whether an object changed since the proxies accepted the resources, or something that it names
// and that is not recorded as an origin: providers of the mesh's configuration, and the keys of tokens.
func (c *Causes) changedSince(r *distribution.Refusal, k model.Key) bool {
	if c.affects(r, k) {
		return true
	}
	if a, ok := c.snap.Get(k).(*model.RequestAuthentication); ok {
		return slices.ContainsFunc(a.Rules, func(rule model.JWTRule) bool {
			return c.affects(r, model.Key{Kind: model.KindKeySet, Name: rule.KeySource()})
		})
	}
	return c.usesMesh(k) && c.meshChanged(r)
}

// meshChanged reports whether the mesh's configuration changed since the proxies accepted the resources.
func (c *Causes) meshChanged(r *distribution.Refusal) bool {
	for o := range c.snap.All(model.KindMeshConfig) {
		if c.affects(r, o.Metadata().Key) {
			return true
		}
	}
	return false
}

// affects reports whether the last change of an object came after the proxies accepted the resources and may have
// changed them. A change that differed in no resource did not, if the resources existed before it.
func (c *Causes) affects(r *distribution.Refusal, k model.Key) bool {
	last, known := c.changes.LastChange(k)
	if !known || last.Revision <= r.Since {
		return false
	}
	change, known := c.changes.Change(last.Revision)
	if !known || change.Times.Translated.IsZero() || change.Resources > 0 {
		return true
	}
	return slices.ContainsFunc(r.About, func(p distribution.Part) bool { return p.Entry.Added >= last.Revision })
}

// usesMesh reports whether an object names providers of the mesh's configuration.
func (c *Causes) usesMesh(k model.Key) bool {
	p, ok := c.snap.Get(k).(*model.AuthorizationPolicy)
	return k.Kind == model.KindTelemetry || ok && p.Provider != ""
}

// naming returns the objects that name the Secret, or the ConfigMap with CAs, of a refused SDS resource.
func (c *Causes) naming(r *distribution.Refusal, all []model.Key) []model.Key {
	var out []model.Key
	for _, part := range r.About {
		plain, isCA := strings.CutSuffix(part.Entry.Name, model.SuffixCA)
		credential, ok := model.ParseCredential(plain)
		if !ok || part.Proxy == nil {
			continue
		}
		key, own := credential.In(part.Proxy.Namespace)
		if !own {
			key = credential.Key()
		}
		for _, k := range all {
			if !slices.Contains(out, k) && names(c.snap.Get(k), part.Proxy.Namespace, key, isCA) {
				out = append(out, k)
			}
		}
	}
	return out
}

// names reports whether an object names a Secret or ConfigMap for proxies of a namespace. CAs may be in a
// Secret of another name.
func names(o model.Object, namespace string, key model.Key, isCA bool) bool {
	var list []model.Key
	switch o := o.(type) {
	case *model.Gateway:
		for _, n := range o.Credentials(namespace) {
			list = append(list, n.Key)
		}
		list = append(list, o.SecretsElsewhere(func(model.Key) bool { return true })...)
	case interface{ Credentials() []model.NeededSecret }:
		for _, n := range o.Credentials() {
			list = append(list, n.Key)
		}
	}
	ca := key
	ca.Name += model.SuffixCA
	return slices.Contains(list, key) || isCA && slices.Contains(list, ca)
}
