package routes

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// The targets are for what the product serves, and the cost of its scope key is measured.
func TestTargetsAreForTheProduct(t *testing.T) {
	require.Equal(t, "buckets-256", split())
	require.True(t, slices.ContainsFunc(Layouts(), func(l Layout) bool { return l.Name == split() }))
	key := fmt.Sprintf("hash-%d", 1<<routeshard.Bits)
	require.True(t, slices.ContainsFunc(keyFormats(), func(f keyFormat) bool { return f.name == key }), key)
	e := New(DefaultOptions())
	var of []string
	for _, b := range e.Targets {
		if b.Metric == metricACK50 {
			of = append(of, b.Variant)
		}
	}
	require.Equal(t, []string{nameOf("buckets-256", 5000), nameOf("product-auto", 5000)}, of)
}
