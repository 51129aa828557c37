package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// blamed is an object that is told that proxies refuse what is made of it.
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

// blamed are those objects, as the control plane tells others.
func (m *mesh) blamed() []blamed {
	m.t.Helper()
	conn, err := grpc.NewClient(m.xds, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(inJSON{})))
	require.NoError(m.t, err)
	defer func() { _ = conn.Close() }() // it has answered
	var out struct{ Refused []blamed }
	require.NoError(m.t, conn.Invoke(m.t.Context(), status.MethodReport, struct{}{}, &out))
	return out.Refused
}

// awaitBlamed waits until so many are told: keys that go with a policy are a change of their own.
func (m *mesh) awaitBlamed(n int) (got []blamed) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%d objects are told that they are refused", n), func() bool {
		got = m.blamed()
		return len(got) == n
	}, func() string { return fmt.Sprintf("%+v", got) })
	return got
}

// causeWorld is a client with a listener for calls to it, and policies of every kind that are fine; a row says
// what is another way, by kind, or comes in addition.
func causeWorld(c *client, other map[string]string) []string {
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

// TestObjectOfARefusedListenerIsFound: of the objects that shape a listener the one is told that Envoy refuses it for.
func TestObjectOfARefusedListenerIsFound(t *testing.T) {
	c := newClient("client")
	m := startMesh(t, server.RoutesAuto, causeWorld(c, nil)...)
	c.start(t, m, false)
	require.Empty(t, m.blamed())
	for _, bad := range []struct {
		kind, spec, says string
		doubt            bool
	}{
		{"WasmPlugin", "extensions.istio.io/v1alpha1; url: 'file:///nonexistent/filter.wasm'", "/nonexistent/filter.wasm", false},
		{"Telemetry", "telemetry.istio.io/v1; accessLogging: [{providers: [{name: file}], filter: {expression: \"string(request.time) == ''\"}}]", "No overload found", false}, // nothing else changed, the mesh's configuration included
		{"RequestAuthentication", `security.istio.io/v1; jwtRules: [{issuer: bad, jwks: '{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}'}]`, "invalid local jwks", false},
	} {
		m.apply(causeWorld(c, map[string]string{bad.kind: bad.spec})...)
		got := m.awaitBlamed(1)
		require.Equal(t, model.Key{Kind: model.Kind(bad.kind), Namespace: "shop", Name: "one"}, got[0].Object)
		require.Contains(t, got[0].Message, bad.says)
		require.Zero(t, got[0].Shared, bad.kind)
		require.Equal(t, bad.doubt, got[0].Doubt, bad.kind)
		m.apply(causeWorld(c, nil)...)
		m.awaitBlamed(0)
	}
	requireMeshsMistakesLeaveDoubt(t, c, m)
}

// requireMeshsMistakesLeaveDoubt checks that no object is the cause for sure of what the mesh's configuration has proxies
// refuse: not the Telemetry that uses the mesh's logs, and not a policy that changes next. If the message quotes the mesh's
// configuration, the policy is not meant.
func requireMeshsMistakesLeaveDoubt(t *testing.T, c *client, m *mesh) {
	t.Helper()
	for wrong, says := range map[string]string{
		"path: /nonexistent/mesh.log":                                            "/nonexistent/mesh.log",
		`path: /dev/null, logFormat: {text: \"%CEL(request.path.contains())%\"}`: "expression",
	} {
		for _, paths := range []string{"/fine", "/as-fine"} {
			docs := causeWorld(c, map[string]string{
				"AuthorizationPolicy": "security.istio.io/v1; rules: [{to: [{operation: {paths: [" + paths + "]}}]}]",
			})
			docs[1] = strings.Replace(docs[1], "path: /dev/null", wrong, 1)
			m.apply(docs...)
			meant := 1
			if says == "expression" && paths == "/as-fine" {
				meant = 2 // both changed
			}
			var telemetry bool
			for _, one := range m.awaitBlamed(meant) {
				telemetry = telemetry || one.Object == model.Key{Kind: model.KindTelemetry, Namespace: "shop", Name: "one"}
				require.Contains(t, one.Message, says)
				require.True(t, one.Doubt, "%+v", one)
			}
			require.True(t, telemetry)
		}
		m.apply(causeWorld(c, nil)...)
		m.awaitBlamed(0)
	}
}
