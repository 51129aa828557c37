package configdump

import (
	"encoding/json"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
)

// withUnknownExtension is a cluster with an extension that no Envoy has.
const withUnknownExtension = `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c", "unknown_field": 1,
 "typed_extension_protocol_options": {"x": {"@type": "type.googleapis.com/acme.Options", "size": 3}}}`

func TestUnknownExtensionsBecomeStructs(t *testing.T) {
	_, err := Resource(json.RawMessage(withUnknownExtension))
	require.ErrorContains(t, err, "acme.Options")

	m, err := ResourceOfAnyExtension(json.RawMessage(withUnknownExtension))
	require.NoError(t, err)
	c := m.(*clusterv3.Cluster)
	require.Equal(t, "c", c.GetName())
	var s structpb.Struct
	require.NoError(t, c.GetTypedExtensionProtocolOptions()["x"].UnmarshalTo(&s))
	require.Equal(t, map[string]any{"type": "acme.Options", "size": 3.0}, s.AsMap())
}

func TestADumpIsWrittenAsItWasRead(t *testing.T) {
	const text = `{"configs":[{"bootstrap":{"node":{"id":"a"}}},{"version_info":"v","dynamic_active_clusters":[{"cluster":{"name":"c"}}]},
{"dynamic_listeners":[{"name":"l","active_state":{"version_info":"v","listener":{"name":"l"}},"error_state":{"details":"no"}}]}]}`
	d, err := Parse([]byte(text))
	require.NoError(t, err)
	written, err := json.Marshal(d)
	require.NoError(t, err)
	require.JSONEq(t, text, string(written))
}
