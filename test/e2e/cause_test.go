package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// blamed is an object whose resources proxies refuse.
type blamed struct {
	Object        model.Key
	What, Message string
	Shared        int
	Doubt         bool
}

type inJSON struct{}

func (inJSON) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (inJSON) Unmarshal(b []byte, into any) error { return json.Unmarshal(b, into) }
func (inJSON) Name() string                       { return "json" }

// blamed returns the objects that the control plane reports to others.
func (m *mesh) blamed() []blamed {
	m.t.Helper()
	conn, err := grpc.NewClient(m.xds, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(inJSON{})))
	require.NoError(m.t, err)
	defer func() { _ = conn.Close() }() // best effort after the answer
	var out struct{ Refused []blamed }
	require.NoError(m.t, conn.Invoke(m.t.Context(), status.MethodReport, struct{}{}, &out))
	return out.Refused
}

// awaitBlamed waits for n objects: keys of a policy are a separate change.
func (m *mesh) awaitBlamed(n int) (got []blamed) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%d objects are reported as refused", n), func() bool {
		got = m.blamed()
		return len(got) == n
	}, func() string { return fmt.Sprintf("%+v", got) })
	return got
}

// awaitKeys waits for the outcome of a fetch of keys, which is a change after another one. Together with a change in one
// revision it makes the policy that names the keys' source a possible cause of a refusal.
func (m *mesh) awaitKeys(after model.Revision) {
	m.t.Helper()
	eventually(m.t, "the outcome of a fetch of keys has reached every proxy", func() bool {
		var answer struct{ Changes []changelog.Change }
		m.get("/debug/changes?n=20", &answer)
		return slices.ContainsFunc(answer.Changes, func(c changelog.Change) bool {
			return c.Revision > after && c.State == changelog.Distributed &&
				slices.ContainsFunc(c.Objects, func(o changelog.ChangedObject) bool {
					return o.Kind == model.KindKeySet && o.Operation != changelog.Deleted
				})
		})
	}, func() string { return fmt.Sprintf("%+v", m.newest()) })
}

// policiesOfEveryKind returns a client with a listener for calls to it, and a valid policy of every kind. other replaces
// the policies of some kinds or adds kinds.
func policiesOfEveryKind(c *client, other map[string]string) []string {
	spec := map[string]string{
		"AuthorizationPolicy":   "security.istio.io/v1; rules: [{to: [{operation: {paths: [/fine]}}]}]",
		"RequestAuthentication": "security.istio.io/v1; jwtRules: [{issuer: fine, jwksUri: 'http://127.0.0.1:1/'}]",
		"PeerAuthentication":    "security.istio.io/v1; mtls: {mode: PERMISSIVE}",
		"Telemetry":             "telemetry.istio.io/v1; accessLogging: [{providers: [{name: file}], filter: {expression: 'response.code >= 400'}}]",
	}
	for kind, text := range other {
		spec[kind] = text
	}
	ingress := fmt.Sprintf("\n  ingress:\n  - port: {number: %d, name: http, protocol: HTTP}\n    bind: %s\n    captureMode: NONE\n    defaultEndpoint: 127.0.0.1:1\n  egress:", meshPort+1, c.ip)
	out := []string{strings.Replace(c.sidecar("./*"), "\n  egress:", ingress, 1), `apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "{defaultProviders: {accessLogging: [file]}, extensionProviders: [{name: file, envoyFileAccessLog: {path: /dev/null}}]}"}`}
	for kind, text := range spec {
		version, text, _ := strings.Cut(text, ";")
		out = append(out, fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: one, namespace: shop}\nspec: {%s}", version, kind, text))
	}
	return out
}

// TestRefusedListenerIsAttributed checks that, of the objects that contribute to a listener, the one is reported
// that Envoy refuses.
func TestRefusedListenerIsAttributed(t *testing.T) {
	c := newClient("client")
	m := startMesh(t, server.RoutesAuto, policiesOfEveryKind(c, nil)...)
	c.start(t, m, false)
	m.awaitKeys(0)
	require.Empty(t, m.blamed())
	for _, bad := range []struct {
		kind, spec, says string
		doubt            bool
	}{
		{"WasmPlugin", "extensions.istio.io/v1alpha1; url: 'file:///nonexistent/filter.wasm'", "/nonexistent/filter.wasm", false},
		{"Telemetry", "telemetry.istio.io/v1; accessLogging: [{providers: [{name: file}], filter: {expression: 'response.code == 9223372036854775808'}}]", "invalid int literal", false}, // nothing else changed, the mesh's configuration included
		{"RequestAuthentication", `security.istio.io/v1; jwtRules: [{issuer: bad, jwks: '{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}'}]`, "invalid local jwks", false},
	} {
		m.apply(policiesOfEveryKind(c, map[string]string{bad.kind: bad.spec})...)
		got := m.awaitBlamed(1)
		require.Equal(t, model.Key{Kind: model.Kind(bad.kind), Namespace: "shop", Name: "one"}, got[0].Object)
		require.Contains(t, got[0].Message, bad.says)
		require.Zero(t, got[0].Shared, bad.kind)
		require.Equal(t, bad.doubt, got[0].Doubt, bad.kind)
		corrected := m.apply(policiesOfEveryKind(c, nil)...)
		m.awaitBlamed(0)
		if bad.kind == "RequestAuthentication" { // its source of keys was gone meanwhile
			m.awaitKeys(corrected.Revision - 1)
		}
	}
	requireMeshsMistakesLeaveDoubt(t, c, m)
}

// requireMeshsMistakesLeaveDoubt checks that no object is reported with certainty if the mesh's configuration is the cause
// of a refusal: neither the Telemetry that uses the mesh's logs, nor a policy that changes next. If the message quotes the
// mesh's configuration, the policy is not reported.
func requireMeshsMistakesLeaveDoubt(t *testing.T, c *client, m *mesh) {
	t.Helper()
	for wrong, says := range map[string]string{
		"path: /nonexistent/mesh.log": "/nonexistent/mesh.log",
		`path: /dev/null, logFormat: {text: \"%CEL(response.code == 9223372036854775808)%\"}`: "expression",
	} {
		for _, paths := range []string{"/fine", "/as-fine"} {
			docs := policiesOfEveryKind(c, map[string]string{
				"AuthorizationPolicy": "security.istio.io/v1; rules: [{to: [{operation: {paths: [" + paths + "]}}]}]",
			})
			docs[1] = strings.Replace(docs[1], "path: /dev/null", wrong, 1)
			m.apply(docs...)
			want := 1
			if says == "expression" && paths == "/as-fine" {
				want = 2 // both changed
			}
			var telemetry bool
			for _, one := range m.awaitBlamed(want) {
				telemetry = telemetry || one.Object == model.Key{Kind: model.KindTelemetry, Namespace: "shop", Name: "one"}
				require.Contains(t, one.Message, says)
				require.True(t, one.Doubt, "%+v", one)
			}
			require.True(t, telemetry)
		}
		m.apply(policiesOfEveryKind(c, nil)...)
		m.awaitBlamed(0)
	}
}
