package outbound

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestMergeMatch checks that a delegate's match is narrowed by the root's; nil: they cannot both match.
func TestMergeMatch(t *testing.T) {
	uri := func(value string, ignoreCase bool) model.HTTPMatch {
		return model.HTTPMatch{URI: &model.StringMatch{Kind: model.MatchPrefix, Value: value}, IgnoreURICase: ignoreCase}
	}
	via := func(gateways ...string) model.HTTPMatch { return model.HTTPMatch{Gateways: gateways} }
	of := func(name string, kind model.MatchKind, value string) model.HTTPMatch {
		return model.HTTPMatch{Headers: []model.HeaderMatch{{Name: name, StringMatch: model.StringMatch{Kind: kind, Value: value}}}}
	}
	without := func(value string) model.HTTPMatch {
		return model.HTTPMatch{WithoutHeaders: []model.HeaderMatch{{Name: "x", StringMatch: model.StringMatch{Kind: model.MatchPrefix, Value: value}}}}
	}
	counted := model.HTTPMatch{StatPrefix: "root"}
	for name, c := range map[string]struct {
		root, child model.HTTPMatch
		want        *model.HTTPMatch
	}{
		"the delegate's path":         {uri("/a", false), uri("/a/b", false), ptr(uri("/a/b", false))},
		"another path":                {uri("/a", false), uri("/b", false), nil},
		"a wider match by case":       {uri("/a", false), uri("/a/b", true), nil},
		"a narrower match by case":    {uri("/a", true), uri("/a/b", false), nil},
		"the root's path in any case": {uri("/a", true), model.HTTPMatch{}, nil},
		"a wider path":                {uri("/a/b", false), uri("/a", false), nil},
		"two regular expressions":     {of("x", model.MatchRegex, "a.*"), of("x", model.MatchRegex, "a.*"), nil},
		"a narrower header":           {of("x", model.MatchPrefix, "a"), of("x", model.MatchExact, "ab"), ptr(of("x", model.MatchExact, "ab"))},
		"a wider header":              {of("x", model.MatchExact, "ab"), of("x", model.MatchPrefix, "a"), nil},
		"a header that excludes less": {without("ad"), without("admin"), ptr(without("admin"))},
		"a header that excludes more": {without("admin"), without("ad"), nil},
		"another namespace":           {model.HTTPMatch{SourceNamespace: "a"}, model.HTTPMatch{}, nil},
		"one of the root's gateways":  {via("a/x", "mesh"), via("mesh"), ptr(via("mesh"))},
		"more gateways":               {via("mesh"), via("a/x", "mesh"), nil},
		"another gateway":             {via("a/x"), via("mesh"), nil},
		"a gateway, and any":          {via("a/x"), via(), ptr(via("a/x"))},
		"any, and a gateway":          {via(), via("a/x"), ptr(via("a/x"))},
		"the root's statistics":       {counted, uri("/a", false), ptr(model.HTTPMatch{URI: uri("/a", false).URI, StatPrefix: "root"})},
		"the delegate's statistics":   {counted, model.HTTPMatch{StatPrefix: "child"}, &model.HTTPMatch{StatPrefix: "child"}},
	} {
		got, ok := mergeMatch(c.root, c.child)
		if c.want == nil {
			require.False(t, ok, "%s: %+v", name, got)
			continue
		}
		require.True(t, ok, name)
		got.SourceLabels = nil
		require.Equal(t, *c.want, got, name)
	}
}

func ptr[T any](v T) *T { return &v }
