package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func peer(ns string, selector map[string]string, mode MTLSMode, ports map[uint32]MTLSMode) *PeerAuthentication {
	p := &PeerAuthentication{Selector: selector, Mode: mode, Ports: ports}
	p.Namespace = ns
	return p
}

func TestEffectivePeerTLS(t *testing.T) {
	const root = "istio-system"
	web := map[string]string{"app": "web"}
	mesh, shop := peer(root, nil, MTLSStrict, nil), peer("shop", nil, MTLSDisable, nil)
	for name, c := range map[string]struct {
		policies []*PeerAuthentication
		want     PeerTLS
	}{
		"nothing set":                {nil, PeerTLS{Mode: MTLSPermissive}},
		"the mesh's":                 {[]*PeerAuthentication{mesh}, PeerTLS{Mode: MTLSStrict}},
		"the namespace's":            {[]*PeerAuthentication{mesh, shop}, PeerTLS{Mode: MTLSDisable}},
		"unset inherits":             {[]*PeerAuthentication{mesh, peer("shop", nil, MTLSUnset, nil), peer("shop", web, MTLSUnset, nil)}, PeerTLS{Mode: MTLSStrict}},
		"the oldest of a level":      {[]*PeerAuthentication{shop, peer("shop", nil, MTLSStrict, nil)}, PeerTLS{Mode: MTLSDisable}},
		"an older one that is unset": {[]*PeerAuthentication{peer("shop", nil, MTLSUnset, nil), shop}, PeerTLS{Mode: MTLSPermissive}},
		"a selector at the root":     {[]*PeerAuthentication{peer(root, web, MTLSStrict, nil)}, PeerTLS{Mode: MTLSPermissive}},
		"the workload's": {
			[]*PeerAuthentication{mesh, shop, peer("shop", web, MTLSPermissive, map[uint32]MTLSMode{80: MTLSStrict, 90: MTLSUnset})},
			PeerTLS{Mode: MTLSPermissive, Ports: map[uint32]MTLSMode{80: MTLSStrict, 90: MTLSPermissive}},
		},
		"ports of a workload that inherits": {
			[]*PeerAuthentication{shop, peer("shop", web, MTLSUnset, map[uint32]MTLSMode{80: MTLSUnset, 90: MTLSStrict})},
			PeerTLS{Mode: MTLSDisable, Ports: map[uint32]MTLSMode{80: MTLSDisable, 90: MTLSStrict}},
		},
	} {
		require.Equal(t, &c.want, EffectivePeerTLS(root, c.policies), name)
	}
	tls := PeerTLS{Mode: MTLSStrict, Ports: map[uint32]MTLSMode{80: MTLSDisable}}
	require.Equal(t, MTLSDisable, tls.Of(80))
	require.Equal(t, MTLSStrict, tls.Of(81))
}
