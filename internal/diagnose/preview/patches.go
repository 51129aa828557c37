package preview

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// maxPatched bounds for how many different proxies Unmatched translates the configuration.
const maxPatched = 100

// Unmatched lists the patches of EnvoyFilters that apply to proxies of a side and find nothing to change in any of them. If
// there are more than 100 proxies with different configurations that may have what patches look for, it lists nothing. files is
// that of Populate, which Unmatched calls.
func Unmatched(mesh *model.Mesh, s Side, files bool) ([]ir.Patch, error) {
	search := patchSearch{root: mesh.RootNamespace}
	for _, o := range s.Objects {
		if f, ok := o.(*model.EnvoyFilter); ok {
			search.add(f)
		}
	}
	if len(search.open) == 0 {
		return nil, nil
	}
	Populate(&Side{}, &s, files)
	o, err := open(mesh, s)
	if err != nil {
		return nil, err
	}
	seen := map[tableKey]bool{}
	for _, p := range o.proxies {
		if !search.concerns(p) {
			continue
		}
		var key tableKey
		copy(key[:], o.compiled.Tables(p))
		if seen[key] {
			continue
		}
		if seen[key] = true; len(seen) > maxPatched {
			return nil, nil
		}
		search.close(o.compiled.PatchMatches())
	}
	var out []ir.Patch
	for _, m := range o.compiled.PatchMatches() {
		if !m.Matched {
			out = append(out, m.Patch)
		}
	}
	return out, nil
}

// patchSearch is the search for what patches match.
type patchSearch struct {
	root string
	open []openPatch
}

// openPatch is a patch that has not matched anything yet.
type openPatch struct {
	filter *model.EnvoyFilter
	*model.EnvoyPatch
}

func (s *patchSearch) add(f *model.EnvoyFilter) {
	for i := range f.Patches {
		if envoyfilter.Needs(&f.Patches[i]) {
			s.open = append(s.open, openPatch{f, &f.Patches[i]})
		}
	}
}

// concerns reports whether a patch that is still open may apply to a proxy.
func (s *patchSearch) concerns(p *model.Proxy) bool {
	router := p.Type == model.ProxyRouter
	return slices.ContainsFunc(s.open, func(o openPatch) bool {
		return (o.filter.Namespace == s.root || o.filter.Namespace == p.Namespace) && model.Selects(o.filter, p.Labels) &&
			(o.Context == model.PatchAnywhere || router == (o.Context == model.PatchGateway))
	})
}

// close removes the patches that match.
func (s *patchSearch) close(list []engine.PatchMatch) {
	s.open = slices.DeleteFunc(s.open, func(o openPatch) bool {
		return slices.ContainsFunc(list, func(m engine.PatchMatch) bool {
			return m.Matched && m.Origin == o.filter.Key && m.Index == o.Index
		})
	})
}
