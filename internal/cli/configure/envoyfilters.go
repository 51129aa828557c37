package configure

import (
	"cmp"
	"reflect"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
)

// unmatchedPatches reports the patches of EnvoyFilters that find nothing to change in the configuration of the workloads among
// the objects. What a patch looks for may be in other files, unless it looks for filters only.
func unmatchedPatches(objects []model.Object, templates []*model.Workload, files bool, root, domain string) problem.List {
	mesh := model.DefaultMesh()
	mesh.Domain, mesh.RootNamespace = domain, cmp.Or(root, mesh.RootNamespace)
	side := preview.Side{Objects: objects, Templates: templates}
	preview.Populate(&preview.Side{}, &side, files)
	patches, err := preview.Unmatched(mesh, side)
	if err != nil {
		return nil // two proxies of one name, which other messages are about
	}
	var out problem.List
	for i := range patches {
		p := envoyfilter.Unmatched(&patches[i])
		if files && !namesOnlyFilters(patches[i].Listener) {
			p.Severity, p.Message = problem.SeverityInfo, p.Message+", unless it is in other files"
		}
		out = append(out, p)
	}
	return out
}

// namesOnlyFilters reports whether a match names filters, and nothing that other objects add.
func namesOnlyFilters(m *model.ListenerMatch) bool {
	if m == nil {
		return false
	}
	others := *m
	others.Filter, others.SubFilter, others.ListenerFilter = "", "", ""
	return reflect.DeepEqual(others, model.ListenerMatch{})
}
