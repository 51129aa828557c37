package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTLSDefaultsUnder(t *testing.T) {
	own := &ServerTLS{Mode: ServerSimple, MinVersion: "TLSv1_2", CipherSuites: []string{"AES128-SHA"}}
	require.Same(t, own, (*TLSDefaults)(nil).Under(own))

	d := &TLSDefaults{MinVersion: "TLSv1_3", CipherSuites: []string{"AES256-SHA"}, ECDHCurves: []string{"P-256"}}
	out := d.Under(own)
	require.Equal(t, &ServerTLS{Mode: ServerSimple, MinVersion: "TLSv1_2", CipherSuites: []string{"AES128-SHA"}, ECDHCurves: []string{"P-256"}}, out)
	require.Empty(t, own.ECDHCurves, "unchanged")

	require.Equal(t, &ServerTLS{MinVersion: "TLSv1_3", CipherSuites: []string{"AES256-SHA"}, ECDHCurves: []string{"P-256"}}, d.Under(&ServerTLS{}))
	require.Equal(t, "TLSv1_2", d.Under(&ServerTLS{MaxVersion: "TLSv1_2"}).MinVersion, "a server that takes no newer one")
}
