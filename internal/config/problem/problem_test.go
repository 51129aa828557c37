package problem

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestProblemsAreSortedByPlace checks the order: file, object, line, field, and then severity.
func TestProblemsAreSortedByPlace(t *testing.T) {
	web := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "web"}
	api := model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "api"}
	nameless := model.Key{Kind: model.KindVirtualService, Namespace: "shop"}
	want := List{
		{Severity: SeverityWarning, Object: api, Field: "spec.subsets[2]"},
		{Severity: SeverityError, Object: api, Field: "spec.subsets[10]"},
		{Severity: SeverityError, Object: api, Field: "spec.subsets[10].name", Message: "a"},
		{Severity: SeverityError, Object: api, Field: "spec.subsets[10].name", Message: "b"},
		{Severity: SeverityInfo, Object: api, Field: "spec.subsets[10].name"},
		{Severity: SeverityWarning, Object: web, Field: "spec"},
		{Severity: SeverityError, Object: web, Field: "spec.hosts[0]"},
		{Severity: SeverityInfo, File: "a.yaml", Line: 3, Object: web, Field: "spec.http[0]"},
		{Severity: SeverityError, File: "a.yaml", Line: 20, Object: web, Field: "spec.http[1]"}, // an alias to what stands behind api
		{Severity: SeverityError, File: "a.yaml", Line: 9, Object: api, Field: "spec"},
		{Severity: SeverityError, File: "a.yaml", Line: 12, Object: nameless, Field: "metadata.name"},
		{Severity: SeverityError, File: "a.yaml", Line: 13, Message: "is not valid YAML"},
		{Severity: SeverityError, File: "a.yaml", Line: 14, Object: nameless, Field: "metadata.name"},
		{Severity: SeverityInfo, File: "b.yaml", Line: 1, Object: web},
		{Severity: SeverityError, File: "b.yaml", Line: 5, Object: web},
	}
	for range 20 {
		got := append(List{}, want...)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		got.Sort()
		require.Equal(t, want, got)
	}
}

// TestAttrs checks that a log has only attributes with a value.
func TestAttrs(t *testing.T) {
	key := model.Key{Kind: model.KindService, Namespace: "shop", Name: "a"}
	require.Equal(t, []any{"where", "a.yaml:3", "problem", "is not valid YAML"}, Problem{File: "a.yaml", Line: 3, Message: "is not valid YAML"}.Attrs())
	require.Equal(t, []any{"object", key.String(), "field", "spec", "problem", "x"}, Problem{Object: key, Field: "spec", Message: "x"}.Attrs())
}
