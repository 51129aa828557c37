package routes

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/bucket"
	"github.com/moonsail/moonsail/internal/lab/experiment"
)

// The bars are for what the product serves, and the cost of its key is measured.
func TestBarsAreTheProducts(t *testing.T) {
	require.Equal(t, "buckets-256", layoutOf(5000))
	require.Equal(t, "vhds", layoutOf(200))
	for _, hosts := range []int{200, 5000} {
		require.True(t, slices.ContainsFunc(Layouts(), func(l Layout) bool { return l.Name == layoutOf(hosts) }))
	}
	key := fmt.Sprintf("hash-%d", 1<<bucket.Bits)
	require.True(t, slices.ContainsFunc(keyFormats(), func(f keyFormat) bool { return f.name == key }), key)
	e := New(DefaultOptions())
	require.True(t, slices.ContainsFunc(e.Bars, func(b experiment.Bar) bool {
		return b.Metric == metricACK50 && b.Variant == nameOf("buckets-256", 5000)
	}))
}
