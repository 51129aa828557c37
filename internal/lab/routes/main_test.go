package routes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/routes"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// TestProduct checks that the control plane is measured, and that each route is the newest at the end. What it sends
// shows which route strategy it uses for 300 virtual hosts.
func TestProduct(t *testing.T) {
	labtest.Temporary(t)
	o := routes.QuickOptions()
	programs, envoy := labtest.Sidecars(t)
	o.Moonsail, o.Envoy = programs.Moonsail, envoy
	o.Hosts, o.Layouts, o.Phase, o.Rounds, o.Rate, o.Keys = []int{300}, []string{"product-vhds", "product-scoped"}, 300*time.Millisecond, 2, 100, 0
	require.NoError(t, o.Check())
	e := routes.New(o)
	e.Budget = 20 * time.Minute
	r, err := experiment.Run(t.Context(), e)
	require.NoError(t, err)
	require.Zero(t, routes.Wrong(r))
	for _, v := range r.Variants {
		require.Len(t, v.Samples, 2, v.Name)
		require.Positive(t, v.Summary["ack_p50_ms"].Min, v.Name)
		require.Zero(t, v.Summary["failed"].Max, v.Name)
	}
	whole, split := r.Variant("product-vhds, 300").Summary["bytes"], r.Variant("product-scoped, 300").Summary["bytes"]
	require.Positive(t, whole.Min)
	require.Greater(t, split.Min, 1.5*whole.Max, "a service's names and its address are in two buckets")
	require.Empty(t, labtest.LeftOver(t))
}
