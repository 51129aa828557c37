package security

import (
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// TestVersionsOfMeshTLS checks that the version of a server overrides the mesh's.
func TestVersionsOfMeshTLS(t *testing.T) {
	for name, tc := range map[string]struct {
		server ir.ServerTLS
		want   tlsv3.TlsParameters_TlsProtocol
	}{
		"default":        {ir.ServerTLS{}, tlsv3.TlsParameters_TLSv1_2},
		"the mesh's":     {ir.ServerTLS{OnlyTLS13: true}, tlsv3.TlsParameters_TLSv1_3},
		"a server's":     {ir.ServerTLS{Server: &model.ServerTLS{Mode: model.ServerIstioMutual, MinVersion: "TLSv1_3"}}, tlsv3.TlsParameters_TLSv1_3},
		"both":           {ir.ServerTLS{OnlyTLS13: true, Server: &model.ServerTLS{Mode: model.ServerIstioMutual, MinVersion: "TLSv1_2"}}, tlsv3.TlsParameters_TLSv1_2},
		"server without": {ir.ServerTLS{OnlyTLS13: true, Server: &model.ServerTLS{Mode: model.ServerIstioMutual}}, tlsv3.TlsParameters_TLSv1_3},
	} {
		socket, err := ServerTLS(&tc.server, true)
		require.NoError(t, err, name)
		context := &tlsv3.DownstreamTlsContext{}
		require.NoError(t, socket.GetTypedConfig().UnmarshalTo(context), name)
		require.Equal(t, tc.want, context.GetCommonTlsContext().GetTlsParams().GetTlsMinimumProtocolVersion(), name)
	}
}

// TestRevokedClientsOfMeshTLS checks that a gateway's file of revoked certificates counts for clients of the mesh, too.
func TestRevokedClientsOfMeshTLS(t *testing.T) {
	socket, err := ServerTLS(&ir.ServerTLS{Server: &model.ServerTLS{Mode: model.ServerIstioMutual, CRL: "/etc/crl/ca.crl"}}, true)
	require.NoError(t, err)
	context := &tlsv3.DownstreamTlsContext{}
	require.NoError(t, socket.GetTypedConfig().UnmarshalTo(context))
	require.Equal(t, "/etc/crl/ca.crl", context.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext().GetCrl().GetFilename())
}
