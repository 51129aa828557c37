package analyze

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOneSlip distinguishes misspellings of a namespace from namespaces with similar names.
func TestOneSlip(t *testing.T) {
	for name, want := range map[[2]string]bool{
		{"shpo", "shop"}: true, {"shoop", "shop"}: true, {"paymnts", "payments"}: true, {"isto-system", "istio-system"}: true,
		{"team-a", "team-b"}: false, {"team-1", "team-2"}: false, {"team1", "team"}: false, {"team", "team-"}: false,
		{"dev", "prod"}: false, {"shop", "shop"}: false, {"shops", "shop"}: false,
	} {
		require.Equal(t, want, oneSlip(name[0], name[1]), name)
	}
}
