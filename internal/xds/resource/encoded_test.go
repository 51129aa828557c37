package resource

import (
	"fmt"
	"runtime"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

func encode(t *testing.T, m *clusterv3.Cluster) *Encoded {
	t.Helper()
	e, err := Encode(Cluster, m.Name, m)
	require.NoError(t, err)
	return e
}

// TestEncodedReadsAsXDS decodes the bytes as the messages that they are part of.
func TestEncodedReadsAsXDS(t *testing.T) {
	want := &clusterv3.Cluster{Name: "outbound|80||a", AltStatName: "a"}
	e := encode(t, want)

	var delta discoveryv3.DeltaDiscoveryResponse
	require.NoError(t, proto.Unmarshal(e.DeltaField(), &delta))
	require.Len(t, delta.Resources, 1)
	require.Equal(t, want.Name, delta.Resources[0].Name)
	require.Equal(t, e.Version, delta.Resources[0].Version)
	require.Equal(t, ClusterURL, delta.Resources[0].Resource.TypeUrl)

	var got clusterv3.Cluster
	require.NoError(t, delta.Resources[0].Resource.UnmarshalTo(&got))
	require.True(t, proto.Equal(want, &got))
	require.NoError(t, proto.Unmarshal(e.Value(), &got))
	require.True(t, proto.Equal(want, &got))
}

func TestVersionDependsOnContent(t *testing.T) {
	a := encode(t, &clusterv3.Cluster{Name: "a"})
	require.Equal(t, a.Version, encode(t, &clusterv3.Cluster{Name: "a"}).Version)
	require.NotEqual(t, a.Version, encode(t, &clusterv3.Cluster{Name: "a", AltStatName: "b"}).Version)
}

func TestInternerSharesAndForgets(t *testing.T) {
	in := NewInterner()
	first := encode(t, &clusterv3.Cluster{Name: "a"})
	require.Same(t, first, in.Intern(Cluster, first))
	require.Same(t, first, in.Intern(Cluster, encode(t, &clusterv3.Cluster{Name: "a"})))
	other := encode(t, &clusterv3.Cluster{Name: "a", AltStatName: "other"})
	require.Same(t, other, in.Intern(Cluster, other))

	for i := range 5000 {
		in.Intern(Cluster, encode(t, &clusterv3.Cluster{Name: fmt.Sprint(i)}))
		if i%1000 == 0 {
			runtime.GC()
		}
	}
	require.Less(t, len(in.known), 4500, "unused resources are collected")
	require.Same(t, first, in.Intern(Cluster, encode(t, &clusterv3.Cluster{Name: "a"})), "resources in use are kept")
	runtime.KeepAlive(other)
}

// TestTypesMatchTheirIndexes: code that indexes by Type relies on it.
func TestTypesMatchTheirIndexes(t *testing.T) {
	for i, info := range Types {
		require.Equal(t, Type(i), info.Type)
		require.NotEmpty(t, info.Short)
		for _, need := range info.Needs {
			require.Less(t, need, info.Type, "%s is sent after what it needs", info.Short)
		}
	}
}
