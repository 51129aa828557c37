package explain

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// changed is a change log with the revisions of objects' last changes.
type changed struct {
	Changes
	at    map[model.Key]model.Revision
	empty model.Revision // changed no resource; the log has dropped all others
}

func (c *changed) Change(rev model.Revision) (changelog.Change, bool) {
	return changelog.Change{Times: changelog.Times{Translated: time.Unix(1, 0)}}, rev == c.empty
}

func (c *changed) LastChange(k model.Key) (changelog.LastChange, bool) {
	rev, ok := c.at[k]
	return changelog.LastChange{Revision: rev}, ok
}

func policyDocument(kind, group, name, namespace, spec string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: {%s}", group, kind, name, namespace, spec)
}

const security, extensions, observed = "security.istio.io/v1", "extensions.istio.io/v1alpha1", "telemetry.istio.io/v1"

// policies is a world of policies, with the revisions in which they changed.
type policies struct {
	*compiledWorld
	log  *changed
	mesh *model.Mesh
}

func (w *policies) causes() *Causes {
	return (&Explainer{Changes: w.log, Mesh: w.mesh}).Causes(w.store.Snapshot())
}

// policyWorld has objects of every kind that shapes web's inbound listener, each changed at a revision of its own.
func policyWorld(t *testing.T) *policies {
	const web = "selector: {matchLabels: {app: web}}"
	w := compile(t, []string{
		policyDocument("AuthorizationPolicy", security, "ours", "shop", web), // at 1
		policyDocument("AuthorizationPolicy", security, "ours-too", "shop", ""),
		policyDocument("RequestAuthentication", security, "mesh", "istio-system", "jwtRules: [{issuer: a}, {issuer: b}]"),
		policyDocument("RequestAuthentication", security, "ours", "shop", web+", jwtRules: [{issuer: c, jwksUri: 'https://example.com/'}]"), // at 4
		policyDocument("Telemetry", observed, "mesh", "istio-system", "accessLogging: [{filter: {expression: 'response.code >= 400'}}, {filter: {expression: \"request.host == 'theirs'\"}}]"),
		policyDocument("Telemetry", observed, "other", "shop", "selector: {matchLabels: {app: other}}"),
		policyDocument("WasmPlugin", extensions, "auth", "shop", "url: 'file:///opt/auth.wasm'"), // at 7
		policyDocument("PeerAuthentication", security, "default", "shop", "mtls: {mode: STRICT}"),
	}...)
	out := &policies{w, &changed{at: map[model.Key]model.Revision{}}, model.DefaultMesh()}
	for i, o := range w.objects {
		out.log.at[o.Metadata().Key] = model.Revision(i + 1)
	}
	w.put(decode(t, webService)) // it has not changed
	out.mesh.AccessLogFile = "/nowhere/mesh.log"
	out.mesh.Telemetry.AccessLog.Text = "%MESHS% %CEL(request.host == 'theirs')%"
	return out
}

// refusedListener is a refusal of virtualInbound by web's proxies, which came in a revision.
func (w *policies) refusedListener(message string, since, at model.Revision) *distribution.Refusal {
	proxy := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web"}, Identity: true}
	made := w.part(proxy, resource.Listener, "virtualInbound")
	tab := table.New("t")
	for i, text := range []string{"accepted", "refused"} {
		tab.Commit(at+model.Revision(i)-1, []table.Update{{
			Type: resource.Listener, Name: "virtualInbound", Origins: made.Entry.MadeFrom(),
			Resource: resource.EncodeBytes(resource.Listener, "virtualInbound", []byte(text)),
		}})
	}
	return &distribution.Refusal{Type: resource.Listener, Name: "virtualInbound", Message: message, Since: since, About: []distribution.Part{{
		Type: resource.Listener, Entry: tab.State().Get(resource.Listener, "virtualInbound"), Group: made.Group, Proxy: proxy,
	}}}
}

// TestCausesOfRefusedListeners checks that the object which Envoy quotes is meant, or else what changed
// since the proxy accepted the listener, or else anything that shapes it. The only object that changed is
// certain, unless the mesh's configuration changed, too.
func TestCausesOfRefusedListeners(t *testing.T) {
	w := policyWorld(t)
	const in = "Error adding/updating listener(s) virtualInbound: "
	all := []string{
		"AuthorizationPolicy/shop/ours", "AuthorizationPolicy/shop/ours-too", "PeerAuthentication/shop/default",
		"RequestAuthentication/istio-system/mesh", "RequestAuthentication/shop/ours", "Telemetry/istio-system/mesh", "WasmPlugin/shop/auth",
	}
	for _, tc := range []struct {
		message   string
		since, at model.Revision
		want      []string
		sure      bool
		mesh      bool
	}{
		{in + "Invalid path: /opt/auth.wasm", 0, 8, []string{"WasmPlugin/shop/auth"}, true, false},
		{in + "Unable to create Wasm plugin extenstions.istio.io/wasmplugin/shop.auth", 0, 8, []string{"WasmPlugin/shop/auth"}, true, false},
		{in + "Provider 'origins-1' in jwt_authn config has invalid local jwks: x", 0, 8, []string{"RequestAuthentication/istio-system/mesh"}, true, false},
		{in + "Provider 'origins-2' in jwt_authn config has invalid local jwks: x", 0, 8, []string{"RequestAuthentication/shop/ours"}, true, false},
		{in + "caused by RBACValidationError.Policies[ns[shop]-policy[ours]-rule[0]]: x", 0, 8, []string{"AuthorizationPolicy/shop/ours"}, true, false},
		{in + `goo.gle/debugstr rules { key: "ns[shop]-policy[ours]-rule[0]" key: "ns[shop]-policy[ours-too]-rule[0]" }: ` +
			"Proto constraint validation failed (RBACValidationError.Policies[ns[shop]-policy[ours-too]-rule[0]]: x)", 0, 8, []string{"AuthorizationPolicy/shop/ours-too"}, true, false},
		{"mistaken: response.code >= 400", 0, 8, []string{"Telemetry/istio-system/mesh"}, true, false},

		// Nothing is quoted: what changed counts. The object at 8 made the listener as it is.
		{in + "Invalid path: /opt/auth.other", 7, 8, []string{"PeerAuthentication/shop/default"}, true, false},
		{in + "Failed to create CIDR range", 6, 8, []string{"PeerAuthentication/shop/default", "WasmPlugin/shop/auth"}, false, false},
		{in + "no argument for repetition operator: *", 7, 9, []string{"PeerAuthentication/shop/default"}, false, false}, // something else changed the listener later
		{in + "something", 8, 9, all, false, true}, // nothing that is recorded changed
		{in + "Failed to create CIDR range", 0, 8, all, false, true},
		{in + "Proto constraint validation failed (RBACValidationError.Rules: x): " +
			`goo.gle/debugstr rules { key: "ns[shop]-policy[ours]-rule[0]" }`, 0, 8, all, false, true},

		// The mesh's configuration is quoted.
		{in + "unable to open file '/nowhere/mesh.log': No such file or directory", 7, 8, []string{"Telemetry/istio-system/mesh"}, false, true},
		{"mistaken: request.host == 'theirs'", 0, 8, all, false, true},
	} {
		cause := w.causes().Of(w.refusedListener(tc.message, tc.since, tc.at))
		require.Equal(t, tc.want, texts(cause.Objects), "%s since %d", tc.message, tc.since)
		require.Equal(t, tc.sure, cause.Sure, "%s since %d", tc.message, tc.since)
		require.Equal(t, tc.mesh, cause.Mesh, "%s since %d", tc.message, tc.since)
	}
}

// TestCausesWhatObjectsName checks that an object counts as changed if something changed that it names and
// that is not an origin: keys of tokens, and the mesh's configuration.
func TestCausesWhatObjectsName(t *testing.T) {
	w := policyWorld(t)
	refused := w.refusedListener("something", 10, 12)
	w.log.at[model.Key{Kind: model.KindKeySet, Name: "https://example.com/"}] = 12
	cause := w.causes().Of(refused)
	require.Equal(t, []string{"RequestAuthentication/shop/ours"}, texts(cause.Objects))
	require.False(t, cause.Sure, "it did not change itself")

	// The listener is in its table from revision 11 on.
	w.log.empty = 12
	cause = w.causes().Of(refused)
	require.True(t, cause.Mesh && !cause.Changed && len(cause.Objects) > 1, "the keys changed no resource")
	w.log.at[model.Key{Kind: model.KindKeySet, Name: "https://example.com/"}], w.log.empty = 11, 11
	require.True(t, w.causes().Of(refused).Changed, "the table may not have existed when the keys changed")
	w.log.empty = 0

	mesh := decode(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: 'accessLogFile: /dev/null'}")
	w.put(mesh)
	w.log.at[mesh.Metadata().Key] = 11
	cause = w.causes().Of(refused)
	require.Equal(t, []string{"RequestAuthentication/shop/ours", "Telemetry/istio-system/mesh"}, texts(cause.Objects))
	require.True(t, cause.Mesh && !cause.Sure)

	delete(w.log.at, model.Key{Kind: model.KindKeySet, Name: "https://example.com/"})
	refused.About[0].Entry = withOrigins("PeerAuthentication/shop/default")
	cause = w.causes().Of(refused)
	require.Empty(t, cause.Objects, "only the mesh's configuration changed")
	require.True(t, cause.Mesh)
}

// withOrigins is a listener that is made from some objects.
func withOrigins(keys ...string) *table.Entry {
	tab := table.New("t")
	commitOrigins(tab, 1, keys...)
	return tab.State().Get(resource.Listener, "l")
}

func commitOrigins(tab *table.Table, rev model.Revision, keys ...string) {
	var from []model.Key
	for _, k := range keys {
		from = append(from, keyOf(k))
	}
	tab.Commit(rev, []table.Update{{
		Type: resource.Listener, Name: "l", Origins: model.OriginsOf(from...), Resource: resource.EncodeBytes(resource.Listener, "l", fmt.Append(nil, rev)),
	}})
}

// TestCausesThatBecameOrigins checks that an object which did not change is meant if the resource is made from it since the
// proxies accepted the resource, and that nothing is sure if the resource lost an origin.
func TestCausesThatBecameOrigins(t *testing.T) {
	w := policyWorld(t)
	const ours, too, sidecar = "AuthorizationPolicy/shop/ours", "AuthorizationPolicy/shop/ours-too", "Sidecar/shop/default"
	tab := table.New("t")
	commitOrigins(tab, 10, too)
	commitOrigins(tab, 12, ours, too)
	refused := &distribution.Refusal{Type: resource.Listener, Name: "l", Since: 11, About: []distribution.Part{{
		Type: resource.Listener, Entry: tab.State().Get(resource.Listener, "l"), Group: model.OriginsOf(keyOf(sidecar)),
	}}}
	cause := w.causes().Of(refused)
	require.Equal(t, []string{ours}, texts(cause.Objects))
	require.True(t, cause.Changed && !cause.Sure, "another object attached it")

	w.put(decode(t, "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: default, namespace: shop}\nspec: {egress: [{hosts: [./*]}]}"))
	w.log.at[keyOf(sidecar)] = 12
	require.Equal(t, []string{ours, sidecar}, texts(w.causes().Of(refused).Objects), "what groups the proxies counts if it changed")
	delete(w.log.at, keyOf(sidecar))

	commitOrigins(tab, 13, ours)
	w.log.at[keyOf(ours)] = 13
	refused.About[0].Entry, refused.Since = tab.State().Get(resource.Listener, "l"), 12
	cause = w.causes().Of(refused)
	require.Equal(t, []string{ours}, texts(cause.Objects))
	require.False(t, cause.Sure, "another object went in the same revision")

	commitOrigins(tab, 14, ours)
	w.log.at[keyOf(ours)] = 14
	refused.About[0].Entry = tab.State().Get(resource.Listener, "l")
	require.True(t, w.causes().Of(refused).Sure)
}

// TestCausesAmongServices checks that objects which somebody wrote for the mesh are named before Services.
func TestCausesAmongServices(t *testing.T) {
	w := policyWorld(t)
	const service, policy = "Service/shop/web", "AuthorizationPolicy/shop/ours"
	refused := &distribution.Refusal{Type: resource.Listener, Name: "l", About: []distribution.Part{{Type: resource.Listener, Entry: withOrigins(service, policy)}}}
	require.Equal(t, []string{policy}, texts(w.causes().Of(refused).Objects))
	refused.About[0].Entry = withOrigins(service)
	require.Equal(t, []string{service}, texts(w.causes().Of(refused).Objects))
	refused.About[0].Entry = withOrigins(service, policy)
	w.log.at[keyOf(service)], w.log.at[keyOf(policy)], refused.Since = 1, 1, 0
	refused.About[0].Entry = withOrigins(policy, service)
	require.False(t, w.causes().Of(refused).Sure)
}
