package inspect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
)

// TestPrintPolicies checks the table of the policies in force at a proxy.
func TestPrintPolicies(t *testing.T) {
	policy := func(name string) model.Key {
		return model.Key{Kind: model.KindAuthorizationPolicy, Namespace: "shop", Name: name}
	}
	var b strings.Builder
	require.NoError(t, printPolicies(&b, &explain.ProxyPolicies{
		Proxy: "ratings-1.shop", ServiceAccount: "ratings",
		Policies: []explain.PolicyInForce{
			{Object: policy("ask"), Action: model.AuthorizeCustom, Provider: "opa", DryRun: true, Rules: []explain.PolicyRule{{Field: "spec.rules[0]", Origin: "p.yaml:7", Calls: "any call"}}},
			{Object: policy("none"), Origin: "p.yaml:12", Action: model.AuthorizeAllow},
		},
		Default:   explain.PolicyDefault{Refused: true, Reason: "a policy has the action ALLOW"},
		MutualTLS: []explain.MutualTLSMode{{Port: 9080, Mode: model.MTLSStrict, Objects: []model.Key{{Kind: model.KindPeerAuthentication, Namespace: "shop", Name: "default"}}}, {Mode: model.MTLSPermissive}},
	}))
	require.Equal(t, `ratings-1.shop, service account ratings

ACTION                  POLICY     RULE      MATCHES                   WHERE
CUSTOM (opa) (dry run)  shop/ask   rules[0]  any call                  p.yaml:7
ALLOW                   shop/none  -         no call: it has no rules  p.yaml:12
all other calls are refused: a policy has the action ALLOW

PORT    MUTUAL TLS  DECIDED BY
9080    STRICT      PeerAuthentication/shop/default
others  PERMISSIVE  -
`, b.String())
}
