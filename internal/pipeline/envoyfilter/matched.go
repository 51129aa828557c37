package envoyfilter

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Matched lists the patches that need something to change, each with whether it has found that in a resource of the group
// since the patch is in force.
func (s *Set) Matched() map[*ir.Patch]bool {
	if s == nil {
		return nil
	}
	out := map[*ir.Patch]bool{}
	for _, list := range s.by {
		for _, p := range list {
			if Needs(p.EnvoyPatch) {
				out[&p.Patch] = p.matched
			}
		}
	}
	return out
}

// Needs reports whether a patch has an effect only if it finds something to change. The others add a resource.
func Needs(p *model.EnvoyPatch) bool {
	switch p.Target {
	case model.PatchBootstrap, model.PatchExtensionConfig:
		return false
	case model.PatchCluster, model.PatchListener:
		return p.Operation != model.PatchAdd
	}
	return true
}

// Unmatched is the problem of a patch that finds nothing to change.
func Unmatched(p *ir.Patch) problem.Problem {
	at := problem.Path("spec").Field("configPatches").Index(p.Index)
	text := fmt.Sprintf("no proxy that the patch applies to has a matching %s, so it has no effect", targetNames[p.Target])
	if m := p.Listener; NamesIstioFilter(m) && (p.Operation.Merges() || p.Operation == model.PatchRemove) {
		text = fmt.Sprintf("filter %s is one of Istio's that Moonsail does not have, so the patch has no effect", cmp.Or(m.SubFilter, m.Filter))
	}
	return problem.Problem{Severity: problem.SeverityWarning, Code: code.PatchUnmatched, Object: p.Origin, Field: string(at.Field("match")), Message: text}
}

// targetNames are what patches look for. The parts of a listener or route configuration stand for the place, too.
var targetNames = map[model.PatchTarget]string{
	model.PatchListener:       "listener",
	model.PatchFilterChain:    "filter chain",
	model.PatchListenerFilter: "listener filter",
	model.PatchNetworkFilter:  "network filter",
	model.PatchHTTPFilter:     "HTTP filter",
	model.PatchRouteConfig:    "route configuration",
	model.PatchVirtualHost:    "virtual host",
	model.PatchHTTPRoute:      "route",
	model.PatchCluster:        "cluster",
}

// Adds records that a patch adds a virtual host to a route configuration.
func (s *Set) Adds(added *ir.Patch) {
	if s == nil {
		return
	}
	for _, p := range s.by[added.Target] {
		if p.isPatch(added) {
			p.matched = true
		}
	}
}

// Keep takes over what the set that this one replaces has found for equal patches: their resources need not be translated
// again.
func (s *Set) Keep(before *Set) {
	if s == nil || before == nil {
		return
	}
	for target, list := range s.by {
		for _, p := range list {
			for _, was := range before.by[target] {
				p.matched = p.matched || was.matched && was.isPatch(&p.Patch)
			}
		}
	}
}

func (p *patch) isPatch(o *ir.Patch) bool {
	return p.Origin == o.Origin && p.Index == o.Index && reflect.DeepEqual(p.EnvoyPatch, o.EnvoyPatch)
}
