package preview

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkloadsWithoutSidecars checks that their calls in plain text are tried, whether a label or an annotation switches
// injection off.
func TestWorkloadsWithoutSidecars(t *testing.T) {
	const host = "reviews.shop.svc.cluster.local:9080"
	strict := "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\nspec: {selector: {matchLabels: {app: reviews}}, mtls: {mode: STRICT}}"
	named := "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: named, namespace: shop}\nspec: {selector: {matchLabels: {app: reviews}}, rules: [{from: [{source: {principals: [\"*\"]}}]}]}"
	labelled := strings.Replace(workload("legacy", "v1"), "labels: {app: legacy, version: v1}}\n    spec", `labels: {app: legacy, sidecar.istio.io/inject: "false", version: v1}}`+"\n    spec", 1)
	annotated := strings.Replace(workload("older", "v1"), "metadata: {labels", `metadata: {annotations: {sidecar.istio.io/inject: "false"}, labels`, 1)
	base := shop(labelled, annotated)
	for name, tc := range map[string]struct{ change, want string }{
		"strict mutual TLS":    {strict, host + " server: accepts -> closes the connection: no filter chain matches"},
		"a policy about names": {named, host + " server: accepts -> answers 403, because no rule of shop/named allows it"},
	} {
		t.Run(name, func(t *testing.T) {
			r := compare(t, base, append(base, tc.change))
			require.Equal(t, []string{tc.want}, changesOf(r))
			require.Equal(t, []string{"legacy-v1.shop", "older-v1.shop"}, r.Differences[0].From)
		})
	}
	t.Run("given calls", func(t *testing.T) {
		in := Input{Before: side(t, base...), After: side(t, append(base, strict)...), Calls: []Call{{From: "legacy-v1.shop", URL: "http://reviews:9080/"}, {From: "older-v1.shop", URL: "http://example.com/"}}}
		Populate(&in.Before, &in.After, true)
		r, err := Compute(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, 2, r.Tried)
		require.Equal(t, 1, r.Differ)
	})
	t.Run("a workload loses its sidecar", func(t *testing.T) {
		without := strings.Replace(workload("frontend", "v1"), "metadata: {labels", `metadata: {annotations: {sidecar.istio.io/inject: "false"}, labels`, 1)
		r := compare(t, shop(strict), replaced(shop(strict), workload("frontend", "v1"), without))
		require.Contains(t, changesOf(r), host+" server: accepts -> closes the connection: no filter chain matches")
		require.Equal(t, []string{"frontend-v1.shop"}, r.Gone)
	})
}
