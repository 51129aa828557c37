package security_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/security"
)

// attributes returns the constants of type Attribute in the model, by name.
func attributes(t *testing.T) map[string]model.Attribute {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../../model/security.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	out := map[string]model.Attribute{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := v.Type.(*ast.Ident); !ok || of.Name != "Attribute" {
			return false
		}
		text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		out[v.Names[0].Name] = model.Attribute(text)
		return false
	})
	require.NotEmpty(t, out)
	return out
}

// policy is a policy of one rule.
func policy(rule model.AuthorizationRule) []*model.AuthorizationPolicy {
	return []*model.AuthorizationPolicy{{
		Meta: model.Meta{Key: model.Key{Namespace: "shop", Name: "p"}}, Rules: []model.AuthorizationRule{rule},
	}}
}

// allowed translates an ALLOW policy of one rule for requests.
func allowed(t *testing.T, rule model.AuthorizationRule) *rbacv3.Policy {
	t.Helper()
	v := &ir.Authorization{TrustDomains: []string{"cluster.local"}, Allow: policy(rule)}
	filters, err := security.RequestDecisions(v, model.PathsAsTheyAre).HTTPFilters()
	require.NoError(t, err)
	require.Len(t, filters, 1)
	var config rbachttpv3.RBAC
	require.NoError(t, filters[0].GetTypedConfig().UnmarshalTo(&config))
	require.Len(t, config.GetRules().GetPolicies(), 1)
	for _, p := range config.GetRules().GetPolicies() {
		return p
	}
	return nil
}

// TestEachAttribute checks that a condition on each attribute of the model is translated.
func TestEachAttribute(t *testing.T) {
	for name, a := range attributes(t) {
		t.Run(name, func(t *testing.T) {
			value := "10.0.0.1"
			if a == model.AttributeDestinationPort {
				value = "80"
			}
			condition := model.AuthorizationCondition{Attribute: a, Names: []string{"one", "two"}, Values: []string{value}}
			rule := model.AuthorizationRule{When: model.AuthorizationMatch{condition}}
			p := allowed(t, rule)
			require.Len(t, p.GetPermissions(), 1)
			require.Len(t, p.GetPrincipals(), 1)
			permission, principal := p.GetPermissions()[0], p.GetPrincipals()[0]
			require.Nil(t, permission.GetNotRule(), "permissionOf does not know the attribute")
			require.Nil(t, principal.GetNotId(), "principalOf does not know the attribute")
			require.Equal(t, a.OfOperation(), !permission.GetAny(), "%v", permission)
			require.Equal(t, a.OfOperation(), principal.GetAny(), "%v", principal)
		})
	}
}

// TestUnknownAttribute checks that a condition on an attribute that is not translated makes the policy stricter.
func TestUnknownAttribute(t *testing.T) {
	const unknown model.Attribute = "source.unknown"
	values := model.AuthorizationMatch{{Attribute: unknown, Values: []string{"a", "b"}}}
	not := model.AuthorizationMatch{{Attribute: unknown, Not: []string{"a", "b"}}}
	matches := []model.AuthorizationMatch{values, not}
	for name, of := range map[string]func(model.AuthorizationMatch) model.AuthorizationRule{
		"from": func(m model.AuthorizationMatch) model.AuthorizationRule {
			return model.AuthorizationRule{From: []model.AuthorizationMatch{m}}
		},
		"to": func(m model.AuthorizationMatch) model.AuthorizationRule {
			return model.AuthorizationRule{To: []model.AuthorizationMatch{m}}
		},
		"when": func(m model.AuthorizationMatch) model.AuthorizationRule { return model.AuthorizationRule{When: m} },
	} {
		for i, kind := range []string{"values", "not values"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				list := policy(of(matches[i]))
				allow := security.RequestDecisions(&ir.Authorization{Allow: list}, model.PathsAsTheyAre)
				require.True(t, allow.RefuseAll(80), "ALLOW matches a request")
				deny := security.RequestDecisions(&ir.Authorization{Deny: list}, model.PathsAsTheyAre)
				require.True(t, deny.RefuseAll(80), "DENY leaves out a request")
			})
		}
	}
}
