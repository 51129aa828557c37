package configure

import (
	"cmp"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
)

// unmatchedPatches reports the patches of EnvoyFilters that find nothing to change in the configuration of the workloads among
// the objects. What a patch looks for may be in other files, unless it is a filter that only Istio has.
func unmatchedPatches(objects []model.Object, templates []*model.Workload, files bool, root, domain string) problem.List {
	mesh := model.DefaultMesh()
	mesh.Domain, mesh.RootNamespace = domain, cmp.Or(root, mesh.RootNamespace)
	patches, err := preview.Unmatched(mesh, preview.Side{Objects: objects, Templates: templates}, files)
	if err != nil {
		return nil // two proxies of one name, which other messages are about
	}
	var out problem.List
	for i := range patches {
		p := envoyfilter.Unmatched(&patches[i])
		if files && !envoyfilter.NamesIstioFilter(patches[i].Listener) {
			p.Severity, p.Message = problem.SeverityInfo, p.Message+", unless it is in other files"
		}
		out = append(out, p)
	}
	return out
}
