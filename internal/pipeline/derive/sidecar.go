package derive

import "github.com/moonsail/moonsail/internal/model"

func (x *Index) replaceSidecar(old, now *model.Sidecar, touched *touched) {
	if old != nil {
		touched.sidecars[old.Namespace] = true
		delete(x.sidecars[old.Namespace], old.Key)
		if len(x.sidecars[old.Namespace]) == 0 {
			delete(x.sidecars, old.Namespace)
		}
	}
	if now != nil {
		touched.sidecars[now.Namespace] = true
		if x.sidecars[now.Namespace] == nil {
			x.sidecars[now.Namespace] = map[model.Key]*model.Sidecar{}
		}
		x.sidecars[now.Namespace][now.Key] = now
		touched.labels = x.countCredentials(now, 1) || touched.labels
	}
	if old != nil { // after the new one, so that what both ask for does not count as news
		touched.labels = x.countCredentials(old, -1) || touched.labels
	}
}

// sidecarFor selects as Istio does: a selector that matches, then the namespace's default,
// then the root namespace's default.
func (x *Index) sidecarFor(p *model.Proxy) *model.Sidecar {
	root := x.mesh.RootNamespace
	if s := pickSidecar(x.sidecars[p.Namespace], p, root, true); s != nil {
		return s
	}
	if s := pickSidecar(x.sidecars[p.Namespace], p, root, false); s != nil {
		return s
	}
	return pickSidecar(x.sidecars[root], p, root, false)
}

// pickSidecar returns the oldest Sidecar that is for a proxy of those with a selector, or of those without one.
func pickSidecar(all map[model.Key]*model.Sidecar, p *model.Proxy, root string, selecting bool) *model.Sidecar {
	var best *model.Sidecar
	for _, s := range all {
		if (len(s.Selector) > 0) != selecting || !s.IsFor(p.Namespace, p.Labels, root) {
			continue
		}
		if best == nil || model.Older(s, best) {
			best = s
		}
	}
	return best
}
