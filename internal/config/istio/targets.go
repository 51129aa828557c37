package istio

import (
	"slices"

	typev1beta1 "istio.io/api/type/v1beta1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// scoped is a spec that selects workloads, as those of policies do.
type scoped interface {
	GetSelector() *typev1beta1.WorkloadSelector
	GetTargetRef() *typev1beta1.PolicyTargetReference
	GetTargetRefs() []*typev1beta1.PolicyTargetReference
}

// policyScope reads which workloads a policy is for: a selector, or references.
func (c policyConv) policyScope(s scoped) (map[string]string, model.Targets) {
	at := problem.Path("spec")
	one, list := s.GetTargetRef(), s.GetTargetRefs()
	both := s.GetSelector() != nil
	var out model.Targets
	switch { // where both are given the list counts, as in Istio
	case len(list) > 0:
		out = c.targets(at.Field("targetRefs"), list, both)
	case one != nil:
		out = c.targetsAt([]problem.Path{at.Field("targetRef")}, []*typev1beta1.PolicyTargetReference{one}, both)
	}
	if !both {
		return nil, out
	}
	return c.Selector(at.Field("selector"), "matchLabels", s.GetSelector().GetMatchLabels()), out
}

// targets reads targetRefs, which nothing else may select beside.
func (c policyConv) targets(at problem.Path, list []*typev1beta1.PolicyTargetReference, selects bool) model.Targets {
	var each []problem.Path
	for i := range list {
		each = append(each, at.Index(i))
	}
	return c.targetsAt(each, list, selects)
}

func (c policyConv) targetsAt(at []problem.Path, list []*typev1beta1.PolicyTargetReference, selects bool) model.Targets {
	if len(list) == 0 {
		return model.Targets{}
	}
	if selects {
		c.Errorf(code.ExclusiveFields, at[0], "cannot be combined with a selector; keep one of them")
	}
	out := model.Targets{Targeted: true}
	for i, ref := range list {
		if c.targetsGateway(at[i], ref) && !slices.Contains(out.Gateways, ref.GetName()) {
			out.Gateways = append(out.Gateways, ref.GetName())
		}
	}
	return out
}

// groupKind is that of a reference; "" and "core" are the same group.
func groupKind(ref *typev1beta1.PolicyTargetReference) string {
	if g := ref.GetGroup(); g != "" && g != "core" {
		return g + "/" + ref.GetKind()
	}
	return ref.GetKind()
}

// ofWaypoints are what else may be referred to: it counts for waypoints.
var ofWaypoints = []string{"Service", "networking.istio.io/ServiceEntry", gatewayv1.GroupName + "/GatewayClass"}

// targetsGateway reports whether a reference is to a Gateway of the policy's namespace.
func (c policyConv) targetsGateway(at problem.Path, ref *typev1beta1.PolicyTargetReference) bool {
	kind := groupKind(ref)
	switch {
	case ref.GetName() == "":
		c.Errorf(code.MissingField, at.Field("name"), "is missing; name a Gateway")
	case ref.GetNamespace() != "" && ref.GetNamespace() != c.Meta.Namespace:
		c.Errorf(code.WrongType, at.Field("namespace"), "must be the object's own namespace; move the object to namespace %s", ref.GetNamespace())
	case slices.Contains(ofWaypoints, kind):
		c.Warnf(code.NotSupported, at, "the mesh has no waypoints, so a reference to %s %s has no effect; use selector for sidecars", ref.GetKind(), ref.GetName())
	case kind != gatewayv1.GroupName+"/Gateway":
		c.Errorf(code.NotAllowedHere, at, "%s cannot be a target; use kind Gateway of group %s, or selector", kind, gatewayv1.GroupName)
	default:
		return true
	}
	return false
}
