package istio

import (
	"fmt"
	"regexp"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1alpha3 "istio.io/client-go/pkg/apis/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/model"
)

// EnvoyFilter decodes an EnvoyFilter. A patch that cannot have the effect that it is meant to
// have is left out, with a warning, and the others go on: what is written for several
// versions of Envoy has patches for each.
func (d Decoder) EnvoyFilter(o *networkingv1alpha3.EnvoyFilter) (*model.EnvoyFilter, Problems) {
	c := d.start(model.KindEnvoyFilter, &o.ObjectMeta)
	at, spec := path("spec"), &o.Spec
	f := &model.EnvoyFilter{Meta: c.meta, Priority: spec.Priority}
	if spec.WorkloadSelector != nil {
		f.Selector = c.selector(at.f("workloadSelector"), "labels", spec.WorkloadSelector.Labels)
	}
	f.Targets = c.targets(at.f("targetRefs"), spec.TargetRefs, spec.WorkloadSelector != nil)
	if len(spec.ConfigPatches) == 0 {
		c.warnf(at.f("configPatches"), "is empty, so the object has no effect")
	}
	for i, p := range spec.ConfigPatches {
		out, ok := c.envoyPatch(at.f("configPatches").i(i), i, p)
		if ok {
			f.Patches = append(f.Patches, out)
		}
	}
	return f, c.list
}

// envoyPatch reads one patch; not ok where it has no effect.
func (c *conv) envoyPatch(at path, i int, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) (model.EnvoyPatch, bool) {
	out := model.EnvoyPatch{Index: i, Target: model.PatchTarget(p.GetApplyTo().String())}
	switch {
	case p.GetApplyTo() == networking.EnvoyFilter_INVALID:
		c.errorf(at.f("applyTo"), "is missing; name what to change, such as HTTP_FILTER")
		return out, false
	case p.Patch == nil || p.Patch.Operation == networking.EnvoyFilter_Patch_INVALID:
		c.errorf(at.f("patch").f("operation"), "is missing; give one, such as MERGE or INSERT_BEFORE")
		return out, false
	}
	operation, ok := c.patchOperation(at, out.Target, model.PatchOperation(p.Patch.Operation.String()), p.Match)
	out.Operation = operation
	ok = c.patchMatch(at.f("match"), p.Match, &out) && ok
	if out.Target == model.PatchBootstrap {
		if out.Context != model.PatchGateway {
			out.Context = model.PatchAnywhere // a bootstrap has no sides
		}
		c.add(SeverityInfo, at.f("applyTo"), "counts for sidecars that start from now on; those that run need a restart to take it")
	}
	return out, c.patchValue(at.f("patch").f("value"), p.Patch, &out) && ok
}

// insertable are the lists in which the place counts.
var insertable = map[model.PatchTarget]bool{
	model.PatchListenerFilter: true, model.PatchNetworkFilter: true, model.PatchHTTPFilter: true, model.PatchHTTPRoute: true,
}

// noEffect are the operations that Istio does not do, besides those that it takes for ADD.
var noEffect = map[model.PatchTarget][]model.PatchOperation{
	model.PatchListener:        {model.PatchReplace},
	model.PatchFilterChain:     {model.PatchReplace},
	model.PatchCluster:         {model.PatchReplace},
	model.PatchHTTPRoute:       {model.PatchReplace},
	model.PatchRouteConfig:     {model.PatchAdd, model.PatchRemove, model.PatchReplace},
	model.PatchBootstrap:       {model.PatchMergeReplace, model.PatchAdd, model.PatchRemove, model.PatchReplace},
	model.PatchExtensionConfig: {model.PatchMerge, model.PatchMergeReplace, model.PatchRemove, model.PatchReplace},
}

// patchOperation is what an operation means for a target: where there is no order, inserting
// is adding.
func (c *conv) patchOperation(at path, target model.PatchTarget, op model.PatchOperation, match *networking.EnvoyFilter_EnvoyConfigObjectMatch) (model.PatchOperation, bool) {
	inserts := op == model.PatchBefore || op == model.PatchAfter || op == model.PatchFirst
	if inserts && !insertable[target] {
		op = model.PatchAdd
	}
	for _, no := range noEffect[target] {
		if op == no {
			c.warnf(at.f("patch").f("operation"), "%s has no effect on %s; the patch is left out", op, target)
			return op, false
		}
	}
	if !c.namesFilter(target, op, match.GetListener()) {
		c.warnf(at.f("match"), "%s of %s needs the name of the filter that it is for; the patch is left out", op, target)
		return op, false
	}
	return op, true
}

// namesFilter tells whether a filter is named where one has to be.
func (c *conv) namesFilter(target model.PatchTarget, op model.PatchOperation, m *networking.EnvoyFilter_ListenerMatch) bool {
	if op != model.PatchRemove && op != model.PatchReplace && (!op.Merges() || target != model.PatchListenerFilter) {
		return true
	}
	switch target {
	case model.PatchListenerFilter:
		return m.GetListenerFilter() != ""
	case model.PatchNetworkFilter:
		return m.GetFilterChain().GetFilter() != nil
	case model.PatchHTTPFilter:
		return m.GetFilterChain().GetFilter().GetSubFilter() != nil
	}
	return true
}

// patchValue reads the message that a patch applies.
func (c *conv) patchValue(at path, p *networking.EnvoyFilter_Patch, out *model.EnvoyPatch) bool {
	if p.FilterClass != networking.EnvoyFilter_Patch_UNSPECIFIED {
		c.warnf(path(strings.TrimSuffix(string(at), "value")+"filterClass"), "has no effect; give the place by an operation and a match")
	}
	if out.Operation == model.PatchRemove {
		return true
	}
	if p.Value == nil {
		c.errorf(at, "is missing; %s needs one", out.Operation)
		return false
	}
	m := envoyext.Message(string(out.Target))
	ok := true
	for _, f := range envoyext.Decode(p.Value, m) {
		ok = ok && !f.Fatal
		c.warnf(at.join(f.Path), "%s%s", f.Message, leftOut(f.Fatal))
	}
	if !ok {
		return false
	}
	if err := envoyext.Validate(m); err != nil && !out.Operation.Merges() {
		c.warnf(at, "Envoy would refuse it: %v; the patch is left out", err)
		return false
	}
	return c.packPatch(at, m, out)
}

func leftOut(fatal bool) string {
	if fatal {
		return "; the patch is left out"
	}
	return ""
}

// join adds a path of its own to a path.
func (p path) join(rest string) path {
	if rest == "" {
		return p
	}
	return path(fmt.Sprintf("%s.%s", p, rest))
}

// proxyVersion reads the expression for versions of proxies.
func (c *conv) proxyVersion(at path, expression string) *regexp.Regexp {
	if expression == "" {
		return nil
	}
	c.regex(at, expression)
	re, err := regexp.Compile(expression)
	if err != nil || len(expression) > maxRegex {
		return nil
	}
	return re
}
