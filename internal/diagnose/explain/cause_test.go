package explain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// changed is a change log with the revisions of objects' last changes.
type changed struct {
	Changes
	at map[model.Key]model.Revision
}

func (c *changed) LastChange(k model.Key) (changelog.LastChange, bool) {
	rev, ok := c.at[k]
	return changelog.LastChange{Revision: rev}, ok
}

func policyDocument(kind, group, name, namespace, spec string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: {%s}", group, kind, name, namespace, spec)
}

const security, extensions, observed = "security.istio.io/v1", "extensions.istio.io/v1alpha1", "telemetry.istio.io/v1"

// policyWorld has objects of every kind that shapes web's inbound listener, each changed at a revision of its own.
func policyWorld(t *testing.T) (*Explainer, *store.Snapshot) {
	const web = "selector: {matchLabels: {app: web}}"
	s, log := store.New(), &changed{at: map[model.Key]model.Revision{}}
	for _, doc := range []string{
		policyDocument("AuthorizationPolicy", security, "ours", "shop", web), // at 1
		policyDocument("AuthorizationPolicy", security, "ours-too", "shop", ""),
		policyDocument("RequestAuthentication", security, "mesh", "istio-system", "jwtRules: [{issuer: a}, {issuer: b}]"),
		policyDocument("RequestAuthentication", security, "ours", "shop", web+", jwtRules: [{issuer: c, jwksUri: 'https://example.com/'}]"), // at 4
		policyDocument("Telemetry", observed, "mesh", "istio-system", "accessLogging: [{filter: {expression: 'response.code >= 400'}}, {filter: {expression: \"request.host == 'theirs'\"}}]"),
		policyDocument("Telemetry", observed, "other", "shop", "selector: {matchLabels: {app: other}}"),
		policyDocument("WasmPlugin", extensions, "auth", "shop", "url: 'file:///opt/auth.wasm'"), // at 7
		policyDocument("PeerAuthentication", security, "default", "shop", "mtls: {mode: STRICT}"),
	} {
		o, _ := config.Decoder{}.FromYAML([]byte(doc))
		require.NotNil(t, o, doc)
		s.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
		log.at[o.Metadata().Key] = model.Revision(len(log.at) + 1)
	}
	mesh := model.DefaultMesh()
	mesh.AccessLogFile = "/nowhere/mesh.log"
	mesh.Telemetry.AccessLog.Text = "%MESHS% %CEL(request.host == 'theirs')%"
	return &Explainer{Changes: log, Mesh: mesh}, s.Snapshot()
}

const inboundText = "\x1fns[shop]-policy[ours]-rule[0]\x20ns[shop]-policy[ours-too]-rule[0]" +
	"\x1benvoy.filters.http.jwt_authn\x2aextenstions.istio.io/wasmplugin/shop.auth\x12\x0e/opt/auth.wasm"

func refusedListener(name, text, message string, since model.Revision) *distribution.Refusal {
	tab := table.New("t")
	tab.Commit(1, []table.Update{{Type: resource.Listener, Name: name, Resource: resource.EncodeBytes(resource.Listener, name, []byte(text))}})
	return &distribution.Refusal{Type: resource.Listener, Name: name, Message: message, Since: since, About: []distribution.Part{{
		Type: resource.Listener, Entry: tab.State().Get(resource.Listener, name),
		Proxy: &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web"}},
	}}}
}

// TestCausesOfRefusedListeners: Envoy's words tell, else those may be meant that changed since the proxy took it, else
// all that shape the listener. What is the only one of its topic, or the only one that changed, is not blamed for sure:
// the mesh's configuration shapes listeners, too.
func TestCausesOfRefusedListeners(t *testing.T) {
	x, snap := policyWorld(t)
	const in = "Error adding/updating listener(s) virtualInbound: "
	for _, tc := range []struct {
		name, text, message string
		since               model.Revision
		want                []string
		sure                bool
	}{
		{"virtualInbound", inboundText, in + "Invalid path: /opt/auth.wasm", 0, []string{"WasmPlugin/shop/auth"}, true},
		{"virtualInbound", inboundText, in + "Unable to create Wasm plugin extenstions.istio.io/wasmplugin/shop.auth", 0, []string{"WasmPlugin/shop/auth"}, true},
		{"virtualInbound", inboundText, in + "Invalid path: /opt/auth.other", 7, []string{"PeerAuthentication/shop/default"}, false},
		{"virtualInbound", inboundText, in + "Provider 'origins-1' in jwt_authn config has invalid local jwks: x", 0, []string{"RequestAuthentication/istio-system/mesh"}, true},
		{"virtualInbound", inboundText, in + "Provider 'origins-2' in jwt_authn config has invalid local jwks: x", 0, []string{"RequestAuthentication/shop/ours"}, true},
		{"virtualInbound", inboundText, in + "caused by RBACValidationError.Policies[ns[shop]-policy[ours]-rule[0]]: x", 0, []string{"AuthorizationPolicy/shop/ours"}, true},
		{"virtualInbound", inboundText, in + `goo.gle/debugstr rules { key: "ns[shop]-policy[ours]-rule[0]" key: "ns[shop]-policy[ours-too]-rule[0]" }: ` +
			"Proto constraint validation failed (RBACValidationError.Policies[ns[shop]-policy[ours-too]-rule[0]]: x)", 0, []string{"AuthorizationPolicy/shop/ours-too"}, true},
		{"virtualInbound", inboundText, in + "Failed to create CIDR range", 0, []string{"AuthorizationPolicy/shop/ours", "AuthorizationPolicy/shop/ours-too"}, false},
		{"virtualInbound", inboundText, in + "Failed to create CIDR range", 1, []string{"AuthorizationPolicy/shop/ours-too"}, false},
		{"virtualInbound", inboundText, in + "failed to create an expression: No overload found", 7, []string{"Telemetry/istio-system/mesh"}, false},
		{"0.0.0.0_80", "", "Not supported field in StreamInfo: MESHS", 4, []string{"Telemetry/istio-system/mesh"}, false},
		{"virtualInbound", inboundText, in + "unable to open file '/nowhere/mesh.log': No such file or directory", 7, []string{"Telemetry/istio-system/mesh"}, false},
		{"0.0.0.0_80", "", "mistaken: request.host == 'theirs'", 0, []string{"Telemetry/istio-system/mesh"}, false},
		{"virtualInbound", inboundText, in + "Proto constraint validation failed (RBACValidationError.Rules: x): " +
			`goo.gle/debugstr rules { key: "ns[shop]-policy[ours]-rule[0]" }`, 0, []string{"AuthorizationPolicy/shop/ours", "AuthorizationPolicy/shop/ours-too"}, false},
		{"0.0.0.0_80", "", "mistaken: response.code >= 400", 0, []string{"Telemetry/istio-system/mesh"}, true},
		{"virtualInbound", inboundText, in + "no argument for repetition operator: *", 6, []string{"WasmPlugin/shop/auth", "PeerAuthentication/shop/default"}, false},
		{"virtualInbound", inboundText, in + "no argument for repetition operator: *", 0, []string{
			"AuthorizationPolicy/shop/ours", "AuthorizationPolicy/shop/ours-too", "WasmPlugin/shop/auth",
			"RequestAuthentication/istio-system/mesh", "RequestAuthentication/shop/ours",
			"Telemetry/istio-system/mesh", "PeerAuthentication/shop/default",
		}, false},
		{"virtualInbound", "", in + "something", 9, []string{"Telemetry/istio-system/mesh", "PeerAuthentication/shop/default"}, false},
		{"0.0.0.0_80", "", "something", 0, []string{"Telemetry/istio-system/mesh"}, false},
		{"0.0.0.0_80", "", "cannot bind '0.0.0.0:80': Address already in use", 0, nil, false},
	} {
		cause := x.Causes(snap).Of(refusedListener(tc.name, tc.text, tc.message, tc.since))
		var got []string
		for _, k := range cause.Objects {
			got = append(got, k.String())
		}
		require.Equal(t, tc.want, got, "%s since %d", tc.message, tc.since)
		require.Equal(t, tc.sure, cause.Sure, "%s since %d", tc.message, tc.since)
		require.False(t, cause.Sure && cause.Changed, "its change is a reason in doubt only")
	}
}
