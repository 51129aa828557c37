package istio

import (
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1alpha3 "istio.io/client-go/pkg/apis/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// EnvoyFilter decodes an EnvoyFilter. A patch that cannot have the effect that it is meant to
// have is left out, with a warning, and the others go on: what is written for several
// versions of Envoy has patches for each.
func EnvoyFilter(in convert.Cluster, o *networkingv1alpha3.EnvoyFilter) (*model.EnvoyFilter, problem.List) {
	c := patchConv{convert.Start(in, model.KindEnvoyFilter, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	f := &model.EnvoyFilter{Meta: c.Meta, Priority: spec.Priority}
	if spec.WorkloadSelector != nil {
		f.Selector = c.Selector(at.Field("workloadSelector"), "labels", spec.WorkloadSelector.Labels)
	}
	f.Targets = policyConv(c).targets(at.Field("targetRefs"), spec.TargetRefs, spec.WorkloadSelector != nil)
	if len(spec.ConfigPatches) == 0 {
		c.Warnf(code.EmptyValue, at.Field("configPatches"), "is empty, so the object has no effect")
	}
	for i, p := range spec.ConfigPatches {
		out, ok := c.envoyPatch(at.Field("configPatches").Index(i), i, p)
		if ok {
			f.Patches = append(f.Patches, out)
		}
	}
	return f, c.Problems
}

// envoyPatch reads one patch; not ok where it has no effect.
func (c patchConv) envoyPatch(at problem.Path, i int, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) (model.EnvoyPatch, bool) {
	out := model.EnvoyPatch{Index: i, Target: model.PatchTarget(p.GetApplyTo().String())}
	switch {
	case p.GetApplyTo() == networking.EnvoyFilter_INVALID:
		c.Errorf(code.MissingField, at.Field("applyTo"), "is missing; name what to change, such as HTTP_FILTER")
		return out, false
	case p.Patch == nil || p.Patch.Operation == networking.EnvoyFilter_Patch_INVALID:
		c.Errorf(code.MissingField, at.Field("patch").Field("operation"), "is missing; set one, such as MERGE or INSERT_BEFORE")
		return out, false
	}
	operation, ok := c.patchOperation(at, out.Target, model.PatchOperation(p.Patch.Operation.String()), p.Match)
	out.Operation = operation
	ok = c.patchMatch(at.Field("match"), p.Match, &out) && ok
	if out.Target == model.PatchBootstrap {
		if out.Context != model.PatchGateway {
			out.Context = model.PatchAnywhere // a bootstrap has no sides
		}
		c.Add(code.PatchLeftOut, problem.SeverityInfo, at.Field("applyTo"), "applies to sidecars that start from now on; restart running sidecars to apply it")
	}
	return out, c.patchValue(at.Field("patch").Field("value"), p.Patch, &out) && ok
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

// patchOperation returns what an operation means for a target. Inserting into a list without an order is
// adding.
func (c patchConv) patchOperation(at problem.Path, target model.PatchTarget, op model.PatchOperation, match *networking.EnvoyFilter_EnvoyConfigObjectMatch) (model.PatchOperation, bool) {
	inserts := op == model.PatchBefore || op == model.PatchAfter || op == model.PatchFirst
	if inserts && !insertable[target] {
		op = model.PatchAdd
	}
	for _, no := range noEffect[target] {
		if op == no {
			c.Warnf(code.PatchLeftOut, at.Field("patch").Field("operation"), "%s has no effect on %s; the patch is left out", op, target)
			return op, false
		}
	}
	if !c.namesFilter(target, op, match.GetListener()) {
		c.Warnf(code.PatchLeftOut, at.Field("match"), "%s of %s needs the name of the filter that it is for; the patch is left out", op, target)
		return op, false
	}
	return op, true
}

// namesFilter reports whether a filter is named where one has to be.
func (c patchConv) namesFilter(target model.PatchTarget, op model.PatchOperation, m *networking.EnvoyFilter_ListenerMatch) bool {
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
func (c patchConv) patchValue(at problem.Path, p *networking.EnvoyFilter_Patch, out *model.EnvoyPatch) bool {
	if p.FilterClass != networking.EnvoyFilter_Patch_UNSPECIFIED {
		c.Warnf(code.NoEffect, problem.Path(strings.TrimSuffix(string(at), "value")+"filterClass"), "has no effect; set the place by an operation and a match")
	}
	if out.Operation == model.PatchRemove {
		return true
	}
	if p.Value == nil {
		c.Errorf(code.MissingField, at, "is missing; %s needs one", out.Operation)
		return false
	}
	m := envoyext.Message(string(out.Target))
	ok := true
	for _, f := range envoyext.Decode(p.Value, m) {
		ok = ok && !f.Fatal
		c.Warnf(code.PatchLeftOut, at.Join(f.Path), "%s%s", f.Message, leftOut(f.Fatal))
	}
	if !ok {
		return false
	}
	if err := envoyext.Validate(m); err != nil && !out.Operation.Merges() {
		c.Warnf(code.PatchLeftOut, at, "Envoy would refuse it: %v; the patch is left out", err)
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

// proxyVersion reads the expression for versions of proxies.
func (c patchConv) proxyVersion(at problem.Path, expression string) *regexp.Regexp {
	if expression == "" {
		return nil
	}
	c.Regex(at, expression)
	if len(expression) > convert.MaxRegex { // is not compiled: ISTIO-SECURITY-2026-006
		return nil
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil
	}
	return re
}

// patchMatch reads what a patch is for; not ok where nothing can match.
func (c patchConv) patchMatch(at problem.Path, m *networking.EnvoyFilter_EnvoyConfigObjectMatch, out *model.EnvoyPatch) bool {
	if m == nil {
		return true
	}
	switch m.Context {
	case networking.EnvoyFilter_WAYPOINT:
		c.Warnf(code.PatchLeftOut, at.Field("context"), "the mesh has no waypoints; the patch is left out")
		return false
	case networking.EnvoyFilter_ANY:
	default:
		out.Context = model.PatchContext(m.Context.String())
	}
	out.ProxyVersion = c.proxyVersion(at.Field("proxy").Field("proxyVersion"), m.GetProxy().GetProxyVersion())
	out.ProxyMetadata = m.GetProxy().GetMetadata()
	switch of := m.ObjectTypes.(type) {
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_Listener:
		return c.fits(at.Field("listener"), out.Target, "listener") && c.listenerMatch(at.Field("listener"), of.Listener, out)
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_RouteConfiguration:
		out.Routes = routeConfigMatch(of.RouteConfiguration)
		return c.fits(at.Field("routeConfiguration"), out.Target, "routeConfiguration")
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_Cluster:
		out.Cluster = clusterMatch(of.Cluster)
		return c.fits(at.Field("cluster"), out.Target, "cluster")
	case *networking.EnvoyFilter_EnvoyConfigObjectMatch_Waypoint:
		c.Warnf(code.PatchLeftOut, at.Field("waypoint"), "the mesh has no waypoints; the patch is left out")
		return false
	}
	return true
}

// matchOf is the match that a target may have.
var matchOf = map[model.PatchTarget]string{
	model.PatchListener: "listener", model.PatchFilterChain: "listener", model.PatchListenerFilter: "listener",
	model.PatchNetworkFilter: "listener", model.PatchHTTPFilter: "listener",
	model.PatchRouteConfig: "routeConfiguration", model.PatchVirtualHost: "routeConfiguration", model.PatchHTTPRoute: "routeConfiguration",
	model.PatchCluster: "cluster",
}

// fits reports whether a target can have a match of a kind. The match of an extension is not checked.
func (c patchConv) fits(at problem.Path, target model.PatchTarget, kind string) bool {
	want, some := matchOf[target]
	if some && want != kind {
		c.Errorf(code.NotAllowedHere, at, "cannot be used with applyTo %s; match by %s", target, want)
		return false
	}
	return true
}

func (c patchConv) listenerMatch(at problem.Path, m *networking.EnvoyFilter_ListenerMatch, out *model.EnvoyPatch) bool {
	chain := m.GetFilterChain()
	out.Listener = &model.ListenerMatch{
		Name: m.GetName(), Port: m.GetPortNumber(), ListenerFilter: envoyext.Canonical(m.GetListenerFilter()),
		ChainName: chain.GetName(), SNI: chain.GetSni(), TransportProtocol: chain.GetTransportProtocol(),
		DestinationPort: chain.GetDestinationPort(),
		Filter:          envoyext.Canonical(chain.GetFilter().GetName()),
		SubFilter:       envoyext.Canonical(chain.GetFilter().GetSubFilter().GetName()),
	}
	if p := chain.GetApplicationProtocols(); p != "" {
		out.Listener.ApplicationProtocols = strings.Split(p, ",")
	}
	if m.GetPortName() != "" {
		c.Warnf(code.NoEffect, at.Field("portName"), "has no effect; match by portNumber")
	}
	return c.filterMatch(at.Field("filterChain").Field("filter"), chain.GetFilter(), out.Target)
}

func (c patchConv) filterMatch(at problem.Path, m *networking.EnvoyFilter_ListenerMatch_FilterMatch, target model.PatchTarget) bool {
	switch {
	case m == nil:
		return true
	case m.Name == "":
		c.Errorf(code.MissingField, at.Field("name"), "is missing; name the network filter")
		return false
	case target == model.PatchListener || target == model.PatchFilterChain:
		c.Warnf(code.NoEffect, at, "has no effect with applyTo %s", target)
	}
	if m.SubFilter == nil {
		return true
	}
	at = at.Field("subFilter")
	switch {
	case target != model.PatchHTTPFilter:
		c.Errorf(code.NotAllowedHere, at, "can be used with applyTo HTTP_FILTER only")
	case envoyext.Canonical(m.Name) != "envoy.filters.network.http_connection_manager":
		c.Errorf(code.NotAllowedHere, at, "needs a filter that has HTTP filters; name envoy.filters.network.http_connection_manager")
	case m.SubFilter.Name == "":
		c.Errorf(code.MissingField, at.Field("name"), "is missing; name the HTTP filter")
	default:
		return true
	}
	return false
}

func routeConfigMatch(m *networking.EnvoyFilter_RouteConfigurationMatch) *model.RouteConfigMatch {
	out := &model.RouteConfigMatch{
		Name: m.GetName(), Port: m.GetPortNumber(), PortName: m.GetPortName(), Gateway: m.GetGateway(),
		VirtualHost: m.GetVhost().GetName(), Domain: m.GetVhost().GetDomainName(),
	}
	if r := m.GetVhost().GetRoute(); r != nil {
		out.Route = &model.RouteMatch{Name: r.Name}
		if r.Action != networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY {
			out.Route.Action = r.Action.String()
		}
	}
	return out
}

func clusterMatch(m *networking.EnvoyFilter_ClusterMatch) *model.ClusterMatch {
	return &model.ClusterMatch{Name: m.GetName(), Service: model.Host(m.GetService()), Subset: m.GetSubset(), Port: m.GetPortNumber()}
}

// ownNames are the mesh's names of listeners and clusters. Added resources may not have them.
var ownNames = regexp.MustCompile(`^(virtualInbound|virtualOutbound|scopes|BlackHoleCluster|PassthroughCluster|InboundPassthroughCluster|(in|out)bound\|.*|\[?[0-9a-fA-F.:]+\]?_[0-9]+)$`)

// packPatch encodes a patch's message.
func (c patchConv) packPatch(at problem.Path, m proto.Message, out *model.EnvoyPatch) bool {
	var err error
	if out.Value, err = envoyext.Pack(m); err != nil {
		c.Warnf(code.PatchLeftOut, at, "cannot be encoded: %v; the patch is left out", err)
		return false
	}
	out.Name, out.Domains = envoyext.NameOf(m), envoyext.DomainsOf(m)
	if out.Operation != model.PatchAdd {
		return true
	}
	switch out.Target {
	case model.PatchListener, model.PatchCluster, model.PatchVirtualHost, model.PatchExtensionConfig:
		if out.Name == "" {
			c.Warnf(code.PatchLeftOut, at.Field("name"), "is missing; what is added needs a name; the patch is left out")
			return false
		}
	}
	if (out.Target == model.PatchListener || out.Target == model.PatchCluster) && ownNames.MatchString(out.Name) {
		c.Warnf(code.PatchLeftOut, at.Field("name"), "%q is reserved by the mesh; use MERGE, or another name; the patch is left out", out.Name)
		return false
	}
	return true
}
