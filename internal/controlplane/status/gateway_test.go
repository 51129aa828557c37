package status

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/source/kube"
)

var updateGolden = flag.Bool("update", false, "write the results to testdata")

// readWorld decodes documents like an API server's, and gives the watched ones to the Tracker.
func readWorld(t *testing.T, b *Tracker, text string) *store.Snapshot {
	t.Helper()
	st := store.New()
	for _, doc := range strings.Split(text, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(doc))
		require.NoError(t, err)
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace, Name string }
		}
		require.NoError(t, json.Unmarshal(raw, &head))
		group, _, _ := strings.Cut(head.APIVersion, "/")
		kinds := config.Resources()
		i := slices.IndexFunc(kinds, func(r config.Resource) bool {
			return r.Kind == head.Kind && (r.Group == group || group == "v1" && r.Group == "")
		})
		require.GreaterOrEqual(t, i, 0, doc)
		out := config.Decoder{}.FromRaw(kinds[i], raw)
		if out.Object == nil && out.Salvaged != nil {
			out.Object = out.Salvaged.Object
		}
		if out.Object != nil {
			st.Apply([]store.Event{{Key: out.Key, Object: out.Object}})
		}
		if gatewayapi.HasRefs(out.Key.Kind) {
			b.Seen(&kube.Seen{Key: out.Key, Version: "1", Generation: 1, Problems: out.Problems, Salvaged: out.Salvaged != nil, GatewayRefs: gatewayapi.RefsOf(out.Key.Kind, raw)})
		}
	}
	return st.Snapshot()
}

// judgeAll gives the Tracker the wanted statuses.
func judgeAll(b *Tracker, snap *store.Snapshot) {
	objects, _ := b.gatewayObjects()
	b.setJudged(judgeGateways(snap, objects))
}

// TestGatewayStatuses judges each testdata/*.txtar.
func TestGatewayStatuses(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			b := NewTracker()
			judgeAll(b, readWorld(t, b, string(a.Files[0].Data)))
			got := b.judgements()
			if *updateGolden {
				a.Files = append(a.Files[:1], txtar.File{Name: "statuses.txt", Data: []byte(got)})
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
			} else {
				require.Equal(t, string(a.Files[1].Data), got)
			}
		})
	}
}

// judgements returns those of all objects as text.
func (t *Tracker) judgements() string {
	var out strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(t.objects), model.Key.Compare) {
		j := t.objects[k].judged
		if j == nil {
			fmt.Fprintf(&out, "%s: nothing\n", k)
			continue
		}
		fmt.Fprintf(&out, "%s\n%s", k, conditionTexts("  ", j.conditions))
		if len(j.features) > 0 {
			fmt.Fprintf(&out, "  supports %v\n", j.features)
		}
		if j.gateway != nil {
			fmt.Fprintf(&out, "  addresses %v\n", j.gateway.addresses)
			for _, l := range j.gateway.listeners {
				fmt.Fprintf(&out, "  listener %s, %d of %v\n%s", l.name, l.attached, l.kinds, conditionTexts("    ", l.conditions))
			}
		}
		for _, standing := range []*routeConditions{j.route, j.policy} {
			if standing == nil {
				continue
			}
			for _, p := range standing.parents {
				fmt.Fprintf(&out, "  parent %s of %s\n%s", p.ref.Ref, p.controller, conditionTexts("    ", p.conditions))
			}
		}
	}
	return out.String()
}

func conditionTexts(indent string, list []condition) string {
	var out strings.Builder
	for _, c := range list {
		text := strings.TrimSpace(fmt.Sprintf("%s %s %s: %s", c.kind, truth(c.ok), c.reason, strings.ReplaceAll(c.message, "\n", "\n"+indent+"  ")))
		fmt.Fprintf(&out, "%s%s\n", indent, strings.TrimSuffix(text, ":"))
	}
	return out.String()
}

const smallWorld = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: moonsail
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: v1
kind: Pod
metadata: {name: router, namespace: shop, labels: {gateway.networking.k8s.io/gateway-name: web}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec: {parentRefs: [{name: web}]}`

var (
	gatewayKey = model.Key{Kind: model.KindKubernetesGateway, Namespace: "shop", Name: "web"}
	routeKey   = model.Key{Kind: model.KindHTTPRoute, Namespace: "shop", Name: "web"}
)

// settle writes an object's status at a time, and returns it.
func settle(t *testing.T, b *Tracker, k model.Key, at int64) gatewayStatus {
	t.Helper()
	u, err := b.update(k, time.Unix(at, 0))
	require.NoError(t, err)
	require.NotNil(t, u, "nothing is to be written")
	var p struct{ Status json.RawMessage }
	require.NoError(t, json.Unmarshal(u.patch, &p))
	require.True(t, b.found(k, &live{version: u.version, generation: u.generation, status: p.Status}))
	u, err = b.update(k, time.Unix(at+1, 0))
	require.NoError(t, err)
	require.Nil(t, u, "what is written is all")
	return b.objects[k].have.(gatewayStatus)
}

func reasonOf(list []map[string]any, kind string) string {
	reason, _ := find(list, "type", kind)["reason"].(string)
	return reason
}

// TestRefusedGateway checks that Programmed reports a NACK until proxies have accepted the Gateway again.
func TestRefusedGateway(t *testing.T) {
	b := NewTracker()
	snap := readWorld(t, b, smallWorld)
	judgeAll(b, snap)
	require.Equal(t, "Programmed", reasonOf(items(settle(t, b, gatewayKey, 10), "conditions"), typeProgrammed))
	b.setRefused(map[model.Key]refusal{gatewayKey: {what: "LDS 0.0.0.0_80", message: "no", proxies: 1}})
	conditions := items(settle(t, b, gatewayKey, 20), "conditions")
	require.Equal(t, ReasonRefused, reasonOf(conditions, typeProgrammed))
	require.Equal(t, "1970-01-01T00:00:20Z", find(conditions, "type", typeProgrammed)["lastTransitionTime"])
	require.Equal(t, "1970-01-01T00:00:10Z", find(conditions, "type", typeAccepted)["lastTransitionTime"], "that has not changed")
	b.setRefused(nil)
	require.Equal(t, []doubtful{{gatewayKey, false}}, b.doubtful())
	u, err := b.update(gatewayKey, time.Unix(30, 0))
	require.NoError(t, err)
	require.Nil(t, u, "it is unknown whether it is accepted")
	b.accept(gatewayKey)
	require.Equal(t, "Programmed", reasonOf(items(settle(t, b, gatewayKey, 40), "conditions"), typeProgrammed))
}

// TestPartsOfOtherWritersStay covers parents of other controllers and conditions of other types.
func TestPartsOfOtherWritersStay(t *testing.T) {
	b := NewTracker()
	snap := readWorld(t, b, smallWorld)
	judgeAll(b, snap)
	theirs := `{"parents":[{"parentRef":{"name":"web"},"controllerName":"example.com/theirs","conditions":[{"type":"Accepted","status":"False"}]},` +
		`{"parentRef":{"name":"old"},"controllerName":"moonsail.dev/gateway-controller","conditions":[]}]}`
	require.True(t, b.found(routeKey, &live{version: "2", generation: 1, status: json.RawMessage(theirs)}))
	parents := items(settle(t, b, routeKey, 1), "parents")
	require.Len(t, parents, 2, "a parent of ours that is not named any more is gone")
	require.Equal(t, "example.com/theirs", parents[0]["controllerName"])
	require.Equal(t, "False", items(parents[0], "conditions")[0]["status"])
	require.Equal(t, gatewayapi.ControllerMoonsail, parents[1]["controllerName"])
	require.Equal(t, "Accepted", reasonOf(items(parents[1], "conditions"), typeAccepted))

	require.True(t, b.found(gatewayKey, &live{version: "2", generation: 1, status: json.RawMessage(`{"conditions":[{"type":"Other","status":"True"}]}`)}))
	status := settle(t, b, gatewayKey, 1)
	require.Equal(t, "True", find(items(status, "conditions"), "type", "Other")["status"])
	require.InDelta(t, 1, items(status, "listeners")[0]["attachedRoutes"], 0)
}

// TestPartlyValidRoute checks that a partly valid route is accepted, and that its status lists the dropped
// rules.
func TestPartlyValidRoute(t *testing.T) {
	const broken = "\nspec:\n  parentRefs: [{name: web}]\n  rules:\n  - {matches: [{path: {value: /a}}], backendRefs: [{name: a}]}\n  - {backendRefs: [{name: b, port: 80}]}"
	b := NewTracker()
	judgeAll(b, readWorld(t, b, strings.Replace(smallWorld, "\nspec: {parentRefs: [{name: web}]}", broken, 1)))
	conditions := items(items(settle(t, b, routeKey, 1), "parents")[0], "conditions")
	require.Equal(t, "True", find(conditions, "type", typeAccepted)["status"])
	require.Equal(t, "True", find(conditions, "type", typePartiallyInvalid)["status"])
	require.Contains(t, find(conditions, "type", typePartiallyInvalid)["message"], "Dropped Rule: error: spec.rules[0].backendRefs[0].port: ")
	require.InDelta(t, 1, items(settle(t, b, gatewayKey, 1), "listeners")[0]["attachedRoutes"], 0)

	judgeAll(b, readWorld(t, b, smallWorld))
	require.True(t, b.found(routeKey, &live{version: "2", generation: 1, status: mustJSON(t, map[string]any{"parents": []any{map[string]any{
		"parentRef": map[string]any{"name": "web"}, "controllerName": gatewayapi.ControllerMoonsail, "conditions": conditions,
	}}})}))
	conditions = items(items(settle(t, b, routeKey, 2), "parents")[0], "conditions")
	require.Equal(t, "True", find(conditions, "type", typeAccepted)["status"])
	require.Nil(t, find(conditions, "type", typePartiallyInvalid))
}

// TestRouteWhoseLastValidVersionServes checks that an edited route with an error is accepted as long as its last valid version is
// in force.
func TestRouteWhoseLastValidVersionServes(t *testing.T) {
	b := NewTracker()
	snap := readWorld(t, b, smallWorld)
	judgeAll(b, snap)
	status := settle(t, b, routeKey, 1)
	seen := b.objects[routeKey].seen
	broken := problem.List{{Severity: problem.SeverityError, Object: routeKey, Field: "spec.rules[0]", Message: "is broken"}}
	b.Seen(&kube.Seen{Key: routeKey, Version: "2", Generation: 2, Problems: broken, InForce: true, GatewayRefs: seen.GatewayRefs, Status: mustJSON(t, status)})
	judgeAll(b, snap)
	conditions := items(items(settle(t, b, routeKey, 2), "parents")[0], "conditions")
	accepted, partly := find(conditions, "type", typeAccepted), find(conditions, "type", typePartiallyInvalid)
	require.Equal(t, "True", accepted["status"])
	require.InDelta(t, 1, accepted["observedGeneration"], 0)
	require.Equal(t, "True", partly["status"])
	require.Contains(t, partly["message"], "Fall Back: the last valid version serves: error: spec.rules[0]: is broken")
	require.InDelta(t, 2, partly["observedGeneration"], 0)
	require.InDelta(t, 1, items(settle(t, b, gatewayKey, 1), "listeners")[0]["attachedRoutes"], 0)
}

// TestParentsWhereLastValidVersionServes checks that an edited route with an error is accepted only where its last valid version is
// attached.
func TestParentsWhereLastValidVersionServes(t *testing.T) {
	const world = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: moonsail
  listeners:
  - {name: a, port: 80, protocol: HTTP, hostname: a.example.com}
  - {name: b, port: 80, protocol: HTTP, hostname: b.example.com}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: next, namespace: shop}
spec: {gatewayClassName: moonsail, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: one, namespace: shop}
spec: {ports: [{name: http, port: 80}, {name: more, port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: two, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: entry, namespace: shop}
spec: {hosts: [entry.example.com], ports: [{name: http, number: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  hostnames: [a.example.com]
  parentRefs:
  - {name: web}
  - {group: "", kind: Service, name: one, port: 80}
  - {group: networking.istio.io, kind: ServiceEntry, name: entry}`
	for name, tt := range map[string]struct {
		parent, hostnames string
		accepted          bool
		attached          map[string]float64 // routes by Gateway and listener
	}{
		"the same":                   {`{name: web}`, `[a.example.com]`, true, map[string]float64{"web/a": 1}},
		"one listener":               {`{name: web, sectionName: a}`, `[a.example.com]`, true, map[string]float64{"web/a": 1}},
		"another hostname beside":    {`{name: web}`, `[a.example.com, b.example.com]`, true, map[string]float64{"web/a": 1}},
		"another hostname":           {`{name: web}`, `[b.example.com]`, false, nil},
		"another Gateway":            {`{name: next}`, `[a.example.com]`, false, nil},
		"the same Service":           {`{group: "", kind: Service, name: one, port: 80}`, `[]`, true, nil},
		"all ports of the Service":   {`{group: "", kind: Service, name: one}`, `[]`, true, nil},
		"another port of a Service":  {`{group: "", kind: Service, name: one, port: 81}`, `[]`, false, nil},
		"another Service":            {`{group: "", kind: Service, name: two}`, `[]`, false, nil},
		"the port of a ServiceEntry": {`{group: networking.istio.io, kind: ServiceEntry, name: entry, port: 80}`, `[]`, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewTracker()
			snap := readWorld(t, b, world)
			raw, err := yaml.YAMLToJSON(fmt.Appendf(nil, "metadata: {name: web, namespace: shop}\nspec: {parentRefs: [%s], hostnames: %s}", tt.parent, tt.hostnames))
			require.NoError(t, err)
			broken := problem.List{{Severity: problem.SeverityError, Object: routeKey, Field: "spec.rules[0]", Message: "is broken"}}
			b.Seen(&kube.Seen{Key: routeKey, Version: "2", Generation: 2, Problems: broken, InForce: true, GatewayRefs: gatewayapi.RefsOf(routeKey.Kind, raw)})
			judgeAll(b, snap)
			parents := items(settle(t, b, routeKey, 1), "parents")
			require.Len(t, parents, 1)
			conditions := items(parents[0], "conditions")
			accepted := find(conditions, "type", typeAccepted)
			require.Equal(t, truth(tt.accepted), accepted["status"])
			require.Equal(t, tt.accepted, find(conditions, "type", typePartiallyInvalid) != nil)
			if !tt.accepted {
				require.Equal(t, unsupportedValue, accepted["reason"])
				require.Contains(t, accepted["message"], "spec.rules[0]: is broken")
			}
			for _, gateway := range []string{"web", "next"} {
				k := model.Key{Kind: model.KindKubernetesGateway, Namespace: "shop", Name: gateway}
				for _, l := range items(settle(t, b, k, 1), "listeners") {
					at := fmt.Sprintf("%s/%s", gateway, l["name"])
					require.InDelta(t, tt.attached[at], l["attachedRoutes"], 0, at)
				}
			}
		})
	}
}

func mustJSON(t *testing.T, v any) json.RawMessage {
	t.Helper()
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return out
}

// TestStatusesAreForTheJudgedGeneration checks that a newer generation waits for its own judgement.
func TestStatusesAreForTheJudgedGeneration(t *testing.T) {
	b := NewTracker()
	snap := readWorld(t, b, smallWorld)
	judgeAll(b, snap)
	gatewayRefs := b.objects[routeKey].seen.GatewayRefs
	b.Seen(&kube.Seen{Key: routeKey, Version: "2", Generation: 2, GatewayRefs: gatewayRefs})
	u, err := b.update(routeKey, time.Unix(1, 0))
	require.NoError(t, err)
	require.Nil(t, u)
	judgeAll(b, snap)
	parents := items(settle(t, b, routeKey, 1), "parents")
	require.InDelta(t, 2, items(parents[0], "conditions")[0]["observedGeneration"], 0)

	b.Seen(&kube.Seen{Key: routeKey, Version: "3", Generation: 3, GatewayRefs: &gatewayapi.Refs{Route: &gatewayapi.RouteRef{}}})
	judgeAll(b, snap)
	u, err = b.update(routeKey, time.Unix(1, 0))
	require.NoError(t, err)
	require.Nil(t, u, "it has no parent of ours, and no status")
}

const besideIstio = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio}
spec: {controllerName: istio.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: istio
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec: {parentRefs: [{name: web, sectionName: http}]}`

// TestIstioStatusesStay checks that we keep the words of Istio's control plane, its Gateways, and
// the order of entries.
func TestIstioStatusesStay(t *testing.T) {
	b := NewTracker()
	judgeAll(b, readWorld(t, b, besideIstio))
	planned := func(k model.Key, status string) bool {
		require.True(t, b.found(k, &live{version: "2", generation: 1, status: json.RawMessage(status)}))
		u, err := b.update(k, time.Unix(1, 0))
		require.NoError(t, err)
		return u != nil
	}
	class := model.Key{Kind: model.KindGatewayClass, Name: "istio"}
	const words = `{"conditions":[{"type":"Accepted","status":"%s","reason":"Accepted","message":"Handled by Istio controller","observedGeneration":%d}]}`
	require.False(t, planned(class, fmt.Sprintf(words, "True", 1)))
	require.True(t, planned(class, fmt.Sprintf(words, "False", 1)))
	require.True(t, planned(class, fmt.Sprintf(words, "True", 0)), "of an earlier generation")

	const old = `{"parents":[{"parentRef":{"name":"web"},"controllerName":"istio.io/gateway-controller","conditions":[]},` +
		`{"parentRef":{"name":"theirs"},"controllerName":"istio.io/gateway-controller","conditions":[]}]}`
	require.True(t, planned(routeKey, old))
	parents := items(settle(t, b, routeKey, 1), "parents")
	require.Len(t, parents, 2, "one that is not named any more of a Gateway of ours is gone")
	require.Equal(t, "theirs", parents[0]["parentRef"].(map[string]any)["name"])
	for _, list := range []string{"parents", "conditions"} {
		status := maps.Clone(map[string]any(b.objects[routeKey].have.(gatewayStatus)))
		if list == "parents" {
			slices.Reverse(status["parents"].([]any))
		} else {
			slices.Reverse(status["parents"].([]any)[0].(map[string]any)["conditions"].([]any))
		}
		raw, err := json.Marshal(status)
		require.NoError(t, err)
		require.False(t, planned(routeKey, string(raw)), "the order of %s is another writer's", list)
	}
}

// TestSupportedFeaturesAreInOrder checks the order that the Gateway API requires.
func TestSupportedFeaturesAreInOrder(t *testing.T) {
	require.True(t, slices.IsSorted(supportedFeatures), supportedFeatures)
}
