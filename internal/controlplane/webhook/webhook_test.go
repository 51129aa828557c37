package webhook

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/config"
)

// TestShippedRules checks that the rules of deploy/webhook.yaml send the handler each kind that it knows,
// and none of an unknown group.
func TestShippedRules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "webhook.yaml"))
	require.NoError(t, err)
	_, doc, found := strings.Cut(string(text), "\n---\n")
	require.True(t, found)
	var shipped registrationv1.ValidatingWebhookConfiguration
	require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &shipped))
	groups := map[string]bool{}
	for _, r := range shipped.Webhooks[0].Rules {
		require.Equal(t, []string{"*"}, r.APIVersions)
		require.Equal(t, []string{"*"}, r.Resources)
		require.Contains(t, r.Operations, registrationv1.Create)
		require.Contains(t, r.Operations, registrationv1.Update)
		for _, g := range r.APIGroups {
			groups[g] = true
		}
	}
	known := map[string]bool{}
	for _, r := range config.Resources() {
		if _, ok := lookup(metav1.GroupVersionKind{Group: r.Group, Kind: r.Kind}); ok {
			known[r.Group] = true
			require.True(t, groups[r.Group], "%s of %s is not sent", r.Kind, r.Group)
		}
	}
	require.Equal(t, known, groups)
}

// routeReview is a review of an HTTPRoute with a parent, a path that no mesh can use, and a filter that
// has no effect.
func routeReview(kind, parent string) string {
	return strings.ReplaceAll(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1","operation":"CREATE",
		"kind":{"group":"gateway.networking.k8s.io","version":"v1","kind":"HTTPRoute"},"namespace":"shop","object":{
		"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"web","namespace":"shop"},"spec":{
		"parentRefs":[`+parent+`],"rules":[{"matches":[{"path":{"type":"RegularExpression","value":"/(?=a)"}}],
		"backendRefs":[{"name":"web","port":80}]}]}}}}`, "HTTPRoute", kind)
}

// TestGatewayAPIHasOtherImplementations checks that the Gateway API's objects are never rejected, and that
// routes of other implementations get no warnings.
func TestGatewayAPIHasOtherImplementations(t *testing.T) {
	const ours = `{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: ours, namespace: shop},
		spec: {gatewayClassName: moonsail, listeners: [{name: http, port: 80, protocol: HTTP}]}}`
	h, _ := handlerOf(t, web, ours)
	for parent, warned := range map[string]bool{
		`{"name":"ours"}`:                            true,
		`{"name":"theirs"}`:                          false,
		`{"name":"theirs"},{"name":"ours"}`:          true,
		`{"name":"web","kind":"Service","group":""}`: true,
		`{"name":"ours","group":"example.com"}`:      false,
	} {
		w := ask(h, http.MethodPost, Path, routeReview("HTTPRoute", parent))
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		var got admissionv1.AdmissionReview
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.True(t, got.Response.Allowed, parent)
		about := slices.ContainsFunc(got.Response.Warnings, func(text string) bool { return strings.Contains(text, "spec.rules[0].matches[0].path") })
		require.Equal(t, warned, about, "%s: %s", parent, got.Response.Warnings)
		require.Equal(t, warned, len(got.Response.Warnings) > 0, "%s: %s", parent, got.Response.Warnings)
	}
	for _, kind := range []string{"UDPRoute", "ListenerSet"} {
		w := ask(h, http.MethodPost, Path, routeReview(kind, `{"name":"theirs"}`))
		var got admissionv1.AdmissionReview
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.True(t, got.Response.Allowed, kind)
		require.Empty(t, got.Response.Warnings, kind)
	}
}
