package security

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

func TestRefuseAll(t *testing.T) {
	is := func(a model.Attribute, values ...string) model.AuthorizationMatch {
		return model.AuthorizationMatch{{Attribute: a, Values: values}}
	}
	not := func(a model.Attribute, values ...string) model.AuthorizationMatch {
		return model.AuthorizationMatch{{Attribute: a, Not: values}}
	}
	from := func(m ...model.AuthorizationMatch) model.AuthorizationRule { return model.AuthorizationRule{From: m} }
	to := func(m ...model.AuthorizationMatch) model.AuthorizationRule { return model.AuthorizationRule{To: m} }
	list := func(rules ...model.AuthorizationRule) []*model.AuthorizationPolicy {
		return []*model.AuthorizationPolicy{{Meta: model.Meta{Key: model.Key{Namespace: "shop", Name: "p"}}, Rules: rules}}
	}
	port, other := is(model.AttributeDestinationPort, "80"), is(model.AttributeDestinationPort, "81")
	caller := is(model.AttributePrincipal, "a")
	for name, tc := range map[string]struct {
		allow, deny []*model.AuthorizationPolicy
		port        uint32
		want        bool
	}{
		"no policy":                      {nil, nil, 80, false},
		"ALLOW without rules":            {list(), nil, 80, true},
		"ALLOW everything":               {list(to()), nil, 80, false},
		"ALLOW a path":                   {list(to(is(model.AttributePath, "/"))), nil, 80, true},
		"ALLOW a caller":                 {list(from(caller)), nil, 80, false},
		"ALLOW all but a caller":         {list(from(not(model.AttributePrincipal, "a"))), nil, 80, false},
		"ALLOW the port":                 {list(to(port)), nil, 80, false},
		"ALLOW another port":             {list(to(other)), nil, 80, true},
		"ALLOW a caller to another port": {list(model.AuthorizationRule{From: []model.AuthorizationMatch{caller}, To: []model.AuthorizationMatch{other}}), nil, 80, true},
		"ALLOW all but the port":         {list(to(not(model.AttributeDestinationPort, "80"))), nil, 80, true},
		"ALLOW the port and another":     {list(to(other, port)), nil, 80, false},
		"ALLOW a port, port unknown":     {list(to(port)), nil, 0, false},
		"DENY without rules":             {nil, list(), 80, false},
		"DENY everything":                {list(to()), list(to()), 80, true},
		"DENY a path":                    {nil, list(to(is(model.AttributePath, "/"))), 80, true},
		"DENY a caller":                  {nil, list(from(caller)), 80, false},
		"DENY the port":                  {nil, list(to(port)), 80, true},
		"DENY all but a caller the port": {nil, list(model.AuthorizationRule{From: []model.AuthorizationMatch{not(model.AttributePrincipal, "a")}, To: []model.AuthorizationMatch{port}}), 80, false},
		"DENY all but the port":          {nil, list(to(not(model.AttributeDestinationPort, "80"))), 80, false},
		"DENY all but another port":      {nil, list(to(not(model.AttributeDestinationPort, "80"))), 81, true},
		"DENY everything as a dry run":   {nil, []*model.AuthorizationPolicy{{DryRun: true, Rules: []model.AuthorizationRule{to()}}}, 80, false},
	} {
		v := &ir.Authorization{TrustDomains: []string{"cluster.local"}, Allow: tc.allow, Deny: tc.deny}
		require.Equal(t, tc.want, ConnectionDecisions(v).RefuseAll(tc.port), name)
	}
	require.False(t, ConnectionDecisions(nil).RefuseAll(80))
}
