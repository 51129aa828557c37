package translate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/nametable"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

func TestNames(t *testing.T) {
	require.Equal(t, nametable.TypeURL, resource.NameTable.URL())
	got, err := nametable.Decode(Names(&ir.Names{Host: "web.shop.svc.cluster.local", Addresses: []string{"10.0.0.1"}, Service: "web", Namespace: "shop"}))
	require.NoError(t, err)
	require.Equal(t, []nametable.Entry{{
		Host: "web.shop.svc.cluster.local", Addresses: []string{"10.0.0.1"}, Registry: nametable.Kubernetes, ShortName: "web", Namespace: "shop",
	}}, got)
	got, err = nametable.Decode(Names(&ir.Names{Host: "api.example.com", Addresses: []string{"192.0.2.1"}}))
	require.NoError(t, err)
	require.Empty(t, got[0].Registry, "a host without shorter names")
}
