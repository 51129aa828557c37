package security

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

func TestRefusesAll(t *testing.T) {
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
	somebody := is(model.AttributePrincipal, "a")
	for name, tc := range map[string]struct {
		allow, deny []*model.AuthorizationPolicy
		port        uint32
		want        bool
	}{
		"no policy":                            {nil, nil, 80, false},
		"nothing is allowed":                   {list(), nil, 80, true},
		"everything is":                        {list(to()), nil, 80, false},
		"requests alone are":                   {list(to(is(model.AttributePath, "/"))), nil, 80, true},
		"somebody is":                          {list(from(somebody)), nil, 80, false},
		"somebody who is nobody else":          {list(from(not(model.AttributePrincipal, "a"))), nil, 80, false},
		"the port is":                          {list(to(port)), nil, 80, false},
		"another port is":                      {list(to(other)), nil, 80, true},
		"another port is, to somebody":         {list(model.AuthorizationRule{From: []model.AuthorizationMatch{somebody}, To: []model.AuthorizationMatch{other}}), nil, 80, true},
		"any other port is":                    {list(to(not(model.AttributeDestinationPort, "80"))), nil, 80, true},
		"one of two ports is":                  {list(to(other, port)), nil, 80, false},
		"a port, and it is not known":          {list(to(port)), nil, 0, false},
		"nothing is denied":                    {nil, list(), 80, false},
		"everything is denied":                 {list(to()), list(to()), 80, true},
		"what a request has is denied":         {nil, list(to(is(model.AttributePath, "/"))), 80, true},
		"somebody is denied":                   {nil, list(from(somebody)), 80, false},
		"the port is denied":                   {nil, list(to(port)), 80, true},
		"the port is denied, unless somebody":  {nil, list(model.AuthorizationRule{From: []model.AuthorizationMatch{not(model.AttributePrincipal, "a")}, To: []model.AuthorizationMatch{port}}), 80, false},
		"all but a port is denied":             {nil, list(to(not(model.AttributeDestinationPort, "80"))), 80, false},
		"all but a port is denied, elsewhere":  {nil, list(to(not(model.AttributeDestinationPort, "80"))), 81, true},
		"everything denied, but only tried so": {nil, []*model.AuthorizationPolicy{{DryRun: true, Rules: []model.AuthorizationRule{to()}}}, 80, false},
	} {
		v := &ir.Authorization{TrustDomains: []string{"cluster.local"}, Allow: tc.allow, Deny: tc.deny}
		require.Equal(t, tc.want, DecisionsOf(v, true).RefuseAll(tc.port), name)
	}
	require.False(t, DecisionsOf(nil, true).RefuseAll(80))
}
