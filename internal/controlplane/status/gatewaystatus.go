package status

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
)

// gatewayStatus is a current status of the Gateway API in JSON. Conditions of other types and parents of
// other controllers are kept.
type gatewayStatus map[string]any

func parseGatewayStatus(raw json.RawMessage) gatewayStatus {
	var out gatewayStatus
	if len(raw) == 0 || json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

// items returns the objects of a list.
func items(in map[string]any, list string) []map[string]any {
	var out []map[string]any
	all, _ := in[list].([]any)
	for _, e := range all {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// find returns the object of a list with a value in a field; nil: there is none.
func find(list []map[string]any, field, value string) map[string]any {
	i := slices.IndexFunc(list, func(m map[string]any) bool { return m[field] == value })
	if i < 0 {
		return nil
	}
	return list[i]
}

// refusedCondition returns the condition about a refusal by proxies; nil: there is none.
func (s gatewayStatus) refusedCondition() map[string]any {
	all := items(s, "conditions")
	for _, p := range append(items(s, "parents"), items(s, "ancestors")...) {
		if isOurController(p["controllerName"]) {
			all = append(all, items(p, "conditions")...)
		}
	}
	return find(all, "reason", ReasonRefused)
}

func isOurController(name any) bool {
	return name == gatewayapi.ControllerMoonsail || name == gatewayapi.ControllerIstio || name == gatewayapi.ControllerMesh
}

// refused implements written.
func (s gatewayStatus) refused() bool { return s.refusedCondition() != nil }

// generation implements written.
func (s gatewayStatus) generation() int64 {
	n, _ := s.refusedCondition()["observedGeneration"].(float64)
	return int64(n)
}

// plan implements written.
func (s gatewayStatus) plan(o *object) patcher {
	j := o.judged
	if j == nil || j.generation != o.seen.Generation {
		return nil
	}
	d := statusBuilder{
		judgement: j, refuse: o.refuse, doubtful: s.refused() && o.refuse == nil && !o.accepted,
		namespace: o.seen.Key.Namespace, writesStatusOf: o.writesStatusOf,
	}
	if d.status(s).same(s) {
		return nil
	}
	version := o.seen.Version
	return func(now time.Time) ([]byte, error) {
		d.now = now.UTC().Format(time.RFC3339)
		return json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "status": d.status(s)})
	}
}

// same reports whether a status has the given parts. An empty list equals an absent one.
func (s gatewayStatus) same(have gatewayStatus) bool {
	for k, v := range s {
		if !(isEmpty(v) && isEmpty(have[k])) && !reflect.DeepEqual(have[k], v) {
			return false
		}
	}
	return true
}

func isEmpty(v any) bool {
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
}

// statusBuilder makes our parts of a status.
type statusBuilder struct {
	*judgement
	refuse *refusal
	// doubtful is set if proxies refused it and it is unknown whether they accept it now: the condition
	// stays.
	doubtful bool
	now      string // time for conditions whose status changes
	// namespace is the object's namespace.
	namespace      string
	writesStatusOf func(model.Key) bool
}

func (d *statusBuilder) status(have gatewayStatus) gatewayStatus {
	if d.route != nil {
		return gatewayStatus{"parents": d.referring(items(have, "parents"), d.route.parents, parentRef)}
	}
	if d.policy != nil {
		return gatewayStatus{"ancestors": d.ancestors(items(have, "ancestors"))}
	}
	out := gatewayStatus{"conditions": d.merged(items(have, "conditions"), d.conditions, typeProgrammed)}
	if len(d.features) > 0 {
		out["supportedFeatures"] = featureList(d.features)
	}
	if d.gateway != nil {
		out["listeners"] = d.listeners(items(have, "listeners"))
		if d.gateway.sets != nil {
			out["addresses"] = addressList(d.gateway.addresses)
			out["attachedListenerSets"] = float64(*d.gateway.sets)
		}
	}
	return out
}

func addressList(list []string) any {
	if len(list) == 0 {
		return nil
	}
	out := make([]any, 0, len(list))
	for _, a := range list {
		out = append(out, map[string]any{"type": addressType(a), "value": a})
	}
	return out
}

// inPlace merges n new entries with the existing ones. A new entry takes the place of the one that it
// replaces, so that two writers do not reorder them forever. Others come last. Existing entries of other
// writers stay if stays holds.
func inPlace(have []map[string]any, n int, replaces func(int, map[string]any) bool, entry func(int, map[string]any) map[string]any, stays func(map[string]any) bool) []any {
	out, placed := []any{}, make([]bool, n)
	for _, old := range have {
		i := 0
		for i < n && (placed[i] || !replaces(i, old)) {
			i++
		}
		if i < n {
			placed[i] = true
			out = append(out, entry(i, old))
		} else if stays(old) {
			out = append(out, old)
		}
	}
	for i := range n {
		if !placed[i] {
			out = append(out, entry(i, nil))
		}
	}
	return out
}

func (d *statusBuilder) listeners(have []map[string]any) []any {
	list := d.gateway.listeners
	return inPlace(have, len(list),
		func(i int, old map[string]any) bool { return old["name"] == list[i].name },
		func(i int, old map[string]any) map[string]any { return d.listener(old, &list[i]) },
		func(map[string]any) bool { return false })
}

func (d *statusBuilder) listener(old map[string]any, l *listenerConditions) map[string]any {
	kinds := []any{}
	for _, k := range l.kinds {
		kinds = append(kinds, map[string]any{"group": gatewayapi.Group, "kind": string(k)})
	}
	return map[string]any{
		"name": l.name, "supportedKinds": kinds, "attachedRoutes": float64(l.attached),
		"conditions": d.merged(items(old, "conditions"), l.conditions, ""),
	}
}

// Fields of references in statuses.
const (
	parentRef   = "parentRef"
	ancestorRef = "ancestorRef"
)

// referring returns the entries of other controllers unchanged, and ours, each with its reference.
func (d *statusBuilder) referring(have []map[string]any, list []parentConditions, field string) []any {
	return inPlace(have, len(list),
		func(i int, old map[string]any) bool {
			return old["controllerName"] == list[i].controller && reflect.DeepEqual(old[field], any(parsed(list[i].ref.Ref)))
		},
		func(i int, old map[string]any) map[string]any {
			return map[string]any{
				field: parsed(list[i].ref.Ref), "controllerName": list[i].controller,
				"conditions": d.merged(items(old, "conditions"), list[i].conditions, typeAccepted),
			}
		},
		func(old map[string]any) bool { return !d.made(old, field) })
}

// made reports whether a parent or ancestor is ours. Istio's control plane uses one of our controller names
// for Gateways of other classes.
func (d *statusBuilder) made(parent map[string]any, field string) bool {
	if parent["controllerName"] != gatewayapi.ControllerIstio {
		return isOurController(parent["controllerName"])
	}
	ref, _ := parent[field].(map[string]any)
	k := model.Key{Kind: model.KindKubernetesGateway, Namespace: d.namespace}
	if ref["kind"] == string(model.KindListenerSet) {
		k.Kind = model.KindListenerSet
	}
	if ns, ok := ref["namespace"].(string); ok {
		k.Namespace = ns
	}
	k.Name, _ = ref["name"].(string)
	return d.writesStatusOf(k)
}

func parsed(raw json.RawMessage) map[string]any {
	var out map[string]any
	_ = json.Unmarshal(raw, &out) // this process made it
	return out
}

// merged returns the wanted conditions, in the places of existing ones of their types. The condition of
// type refusing reports what proxies refuse.
func (d *statusBuilder) merged(have []map[string]any, want []condition, refusing string) []any {
	return inPlace(have, len(want),
		func(i int, old map[string]any) bool { return old["type"] == want[i].kind },
		func(i int, old map[string]any) map[string]any { return d.drawn(old, want[i], refusing) },
		func(old map[string]any) bool { return !slices.Contains(passing, old["type"]) })
}

// passing are the types of conditions that end, instead of turning False.
var passing = []any{typePartiallyInvalid, typeInsecureFrontend, typeResolvedRefs}

func (d *statusBuilder) drawn(old map[string]any, c condition, refusing string) map[string]any {
	if c.ok && c.kind == refusing {
		if d.doubtful && old["reason"] == ReasonRefused {
			return old
		} else if d.refuse != nil {
			c.ok, c.reason, c.message = false, ReasonRefused, shorten([]string{d.refuse.String()})
		}
	}
	if d.route == nil && d.gateway == nil && d.policy == nil && old["status"] == truth(c.ok) && old["observedGeneration"] == float64(d.generation) {
		return old // Istio's control plane may have written the condition of a GatewayClass in other words
	}
	return d.written(old, &c)
}

func (d *statusBuilder) written(old map[string]any, c *condition) map[string]any {
	out := maps.Clone(old)
	if out == nil {
		out = map[string]any{}
	}
	if old["status"] != truth(c.ok) || old["lastTransitionTime"] == nil {
		out["lastTransitionTime"] = d.now
	}
	out["type"], out["status"], out["reason"], out["message"] = c.kind, truth(c.ok), c.reason, c.message
	out["observedGeneration"] = float64(d.generation)
	if good := old["observedGeneration"]; d.route != nil && d.route.fallsBack && c.kind == typeAccepted && c.ok && old["status"] == truth(true) && good != nil {
		out["observedGeneration"] = good // of the version that serves
	}
	return out
}
