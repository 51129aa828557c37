package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSameAudience(t *testing.T) {
	web, api := map[string]string{"app": "web"}, map[string]string{"app": "api"}
	for name, tc := range map[string]struct {
		a, b Object
		want bool
	}{
		"rules alone":         {&AuthorizationPolicy{Selector: web}, &AuthorizationPolicy{Selector: web, Rules: []AuthorizationRule{{}}}, true},
		"another selector":    {&AuthorizationPolicy{Selector: web}, &AuthorizationPolicy{Selector: api}, false},
		"no selector":         {&Telemetry{Selector: web}, &Telemetry{}, false},
		"a Gateway instead":   {&AuthorizationPolicy{}, &AuthorizationPolicy{Targets: Targets{Targeted: true, Gateways: []string{"edge"}}}, false},
		"another mode":        {&PeerAuthentication{Mode: MTLSStrict}, &PeerAuthentication{Mode: MTLSPermissive}, true},
		"a mode callers know": {&PeerAuthentication{Mode: MTLSStrict}, &PeerAuthentication{Mode: MTLSDisable}, false},
		"a Sidecar":           {&Sidecar{Selector: web}, &Sidecar{Selector: api}, false},
		"of no selector":      {&VirtualService{Hosts: []Host{"a"}}, &VirtualService{}, true},
	} {
		require.Equal(t, tc.want, SameAudience(tc.a, tc.b), name)
	}
}
